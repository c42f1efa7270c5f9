// Nvrtc: NVIDIA's run-time compiler, opened by path where PyTorch's wheel brought it. Makes the content
// hash's PTX, which is kept in the tree; nothing is needed of it when Spillway is built or runs.

#ifndef SPILLWAY_TESTS_ALLOCATOR_DRIVER_NVRTC_H_
#define SPILLWAY_TESTS_ALLOCATOR_DRIVER_NVRTC_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace spillway::allocator {

class Nvrtc {
 public:
  // `library`: path or name for dlopen. kNotFound with the loader's words when it cannot be opened, or when
  // it lacks a function.
  static absl::StatusOr<std::unique_ptr<Nvrtc>> Open(const std::string& library);
  // Closes the library: what it compiled does not depend on it.
  ~Nvrtc();
  Nvrtc(const Nvrtc&) = delete;
  Nvrtc& operator=(const Nvrtc&) = delete;

  // CUDA C, which may include `header` by its name, to PTX for compute capability `capability` / 10.
  // kInternal when it does not compile. One thread at a time.
  absl::StatusOr<std::string> CompileToPtx(const std::string& source, const std::string& header_name,
                                           const std::string& header, int capability) const;

 private:
  struct Functions;
  Nvrtc(void* library, std::unique_ptr<Functions> functions);

  void* const library_;
  const std::unique_ptr<Functions> functions_;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_TESTS_ALLOCATOR_DRIVER_NVRTC_H_
