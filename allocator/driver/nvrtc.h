// Nvrtc: NVIDIA's run-time compiler, opened by path where PyTorch's wheel brought it. Nothing is needed of it when
// Spillway is built.

#ifndef SPILLWAY_ALLOCATOR_DRIVER_NVRTC_H_
#define SPILLWAY_ALLOCATOR_DRIVER_NVRTC_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace spillway::allocator {

class Nvrtc {
 public:
  // `library`: path or name for dlopen. kNotFound with the loader's words when it cannot be opened, or when it lacks a
  // function.
  static absl::StatusOr<std::unique_ptr<Nvrtc>> Open(const std::string& library);
  // Closes the library: what it compiled does not depend on it.
  ~Nvrtc();
  Nvrtc(const Nvrtc&) = delete;
  Nvrtc& operator=(const Nvrtc&) = delete;

  // CUDA C to an image for cuModuleLoadData on a device of compute capability major.minor: a cubin where this NVRTC
  // knows the device, else PTX of its newest architecture. kInternal with the compiler's log. Takes tenths of a
  // second. One thread at a time.
  absl::StatusOr<std::string> Compile(const char* source, int major, int minor) const;

 private:
  struct Functions;
  Nvrtc(void* library, std::unique_ptr<Functions> functions);

  void* const library_;
  const std::unique_ptr<Functions> functions_;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_DRIVER_NVRTC_H_
