// HashCode: where the device's content hash comes from: PTX that is kept in the tree; tests give other images.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_HASH_CODE_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_HASH_CODE_H_

#include <string>

#include "absl/status/statusor.h"
#include "allocator/driver/content_hash.h"

namespace spillway::allocator {

class HashCode {
 public:
  virtual ~HashCode() = default;
  // An image for cuModuleLoadData that holds content_hash::kKernelName, for devices of that compute capability. Any
  // thread.
  virtual absl::StatusOr<std::string> Image(int major, int minor) = 0;
};

class PtxHashCode : public HashCode {
 public:
  // kNotFound for devices that are too old for it.
  absl::StatusOr<std::string> Image(int major, int minor) override {
    if (10 * major + minor >= content_hash::kLeastCapability) return content_hash::KernelPtx();
    return absl::NotFoundError("the content hash is for compute capability 7.5 and later");
  }
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_HASH_CODE_H_
