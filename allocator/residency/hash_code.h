// HashCode: where the device's content hash comes from. integration/engine finds NVRTC and compiles; tests give images.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_HASH_CODE_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_HASH_CODE_H_

#include <string>

#include "absl/status/statusor.h"

namespace spillway::allocator {

class HashCode {
 public:
  virtual ~HashCode() = default;
  // An image for cuModuleLoadData that holds content_hash::kKernelName, for devices of that compute capability. May
  // take a second. Any thread.
  virtual absl::StatusOr<std::string> Image(int major, int minor) = 0;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_HASH_CODE_H_
