// The way to the driver: registered functions, one cuLaunchKernel per operator, and the reports of a running
// operator. Owns the table of driver entry points (found as any application finds them, so that a preload
// sees the launches) and the registration of host functions with the stand-in driver. Knows nothing of
// tensors.
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

// Something that a stream can run. Run is called on the stream's thread, once, or (launched on a capturing
// stream) at each replay, and must not throw or call CUDA.
class QueuedWork {
 public:
  virtual ~QueuedWork() = default;
  virtual void Run() = 0;
};

// The registered forms of one op: same name, one for each number of addresses. Thread-safe.
class LaunchFunctions {
 public:
  // Returns the kernel of `name` that takes at least `addresses` addresses; *padded is how many it declares.
  // `number_words` is the number of words of its last parameter, which is equal for all calls with as many
  // addresses. Its first look-up needs a current context, like that of any kernel. Throws if the driver
  // refuses.
  CUfunction Find(const std::string& name, size_t addresses, size_t number_words, size_t* padded);

 private:
  std::mutex mu_;
  std::vector<CUfunction> by_size_class_;  // guarded by mu_
};

// Finds the driver's entry points and the stand-in's registration. Returns false, with a reason, if this
// process does not run on the stand-in driver. Must be called once before anything else here.
bool OpenDriver(std::string* reason);

// A kernel's input: addresses, each a parameter, and words of numbers, together the last one.
struct LaunchParameters {
  const std::vector<uint64_t>& addresses;
  std::vector<uint64_t> numbers;
};

// The most addresses of a kernel that works on no lists of tensors.
inline constexpr size_t kMaxAddressesOfOne = 16;

// Enqueues `work` on `stream` as one launch of `name`. The stream's device must be current. Throws (PyTorch's
// CUDA error) if the driver refuses; `work` never runs then. It is released after its run, or with the last
// graph that has it.
void Launch(const std::string& name, LaunchFunctions* functions, const LaunchParameters& parameters,
            std::shared_ptr<QueuedWork> work, c10::cuda::CUDAStream stream);

// Fails the device of the operator that runs on this thread. The text goes to standard error, and the next
// synchronization throws ("unspecified launch failure").
void FailDevice(const std::string& text);

// Fails the device by a device-side assert: `line` goes to standard error as a device prints it, and the
// error is "device-side assert triggered".
void FailDeviceByAssert(const std::string& line);

}  // namespace simcuda::ops

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_TORCH_LAUNCH_H_
