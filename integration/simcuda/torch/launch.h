// The way to the driver: registered functions, one cuLaunchKernel per operator, and how a running operator reports.
// Owns the table of driver entry points (found as any application finds them, so that a preload sees the launches)
// and the registration of host functions with the stand-in driver. Knows nothing of tensors.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_TORCH_LAUNCH_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_TORCH_LAUNCH_H_

#include <c10/cuda/CUDAStream.h>
#include <cuda.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace simcuda::ops {

// Something that a stream can run. Run is called on the stream's thread, once, or (launched on a capturing stream) at each
// replay, and must not throw or call CUDA.
class QueuedWork {
 public:
  virtual ~QueuedWork() = default;
  virtual void Run() = 0;
};

// The registered forms of one op: same name, one for each number of addresses. Any thread may call.
class LaunchFunctions {
 public:
  // The kernel of `name` that takes at least `addresses` addresses; *padded is how many it declares. `number_words` are the
  // words of its last parameter, as many for each call with as many addresses. Its first look-up wants a current context,
  // as that of any kernel. Throws when the driver refuses.
  CUfunction Find(const std::string& name, size_t addresses, size_t number_words, size_t* padded);

 private:
  std::mutex mu_;
  std::vector<CUfunction> by_size_class_;  // guarded by mu_
};

// Finds the driver's entry points and the stand-in's registration. False, with a reason, when this process does not
// run on the stand-in driver. Call once before anything else here.
bool OpenDriver(std::string* reason);

// What a kernel gets: addresses, each a parameter, and words of numbers, together the last one.
struct LaunchParameters {
  const std::vector<uint64_t>& addresses;
  std::vector<uint64_t> numbers;
};

// The most addresses of a kernel that works on no lists of tensors.
inline constexpr size_t kMostAddressesOfOne = 16;

// Enqueues `work` on `stream` as one launch of `name`. The stream's device must be current. Throws (PyTorch's CUDA error)
// when the driver refuses; `work` then never runs. It is let go where it has run, or with the last graph that holds it.
void Launch(const std::string& name, LaunchFunctions* functions, const LaunchParameters& parameters,
            std::shared_ptr<QueuedWork> work, c10::cuda::CUDAStream stream);

// Fails the device of the operator that runs on this thread; the text goes to standard error and the next
// synchronisation throws ("unspecified launch failure").
void FailDevice(const std::string& text);

// Likewise by a device-side assert: `line` goes to standard error as a device prints it, and the error is
// "device-side assert triggered".
void FailDeviceByAssert(const std::string& line);

}  // namespace simcuda::ops

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_TORCH_LAUNCH_H_
