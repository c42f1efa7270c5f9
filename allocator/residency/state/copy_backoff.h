// CopyBackoff: the history of an address's copies. It decides whether the next eviction hashes its bytes, in
// order to keep the copy, or to find a write that nobody saw. The lock of the table of blocks guards it.
// Nothing fails.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_STATE_COPY_BACKOFF_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_STATE_COPY_BACKOFF_H_

#include <cstdint>

namespace spillway::allocator {

// A block whose copy was of no use k times in a row is not hashed for its next 2^k - 1 evictions, at most 63.
// A block that changes in each iteration thus costs next to nothing.
class CopyBackoff {
 public:
  // Number of an address's first evictions that are verified. Later ones are verified when their copy is
  // kept.
  static constexpr int kFirstVerified = 8;

  // Called at an eviction that writes, which it counts. Whether to hash the bytes and keep the copy.
  bool WantsHash() {
    if (skip_ == 0) return true;
    --skip_;
    return false;
  }
  // At the same eviction: whether to hash the bytes in order to find a write that nobody saw.
  bool wants_verification() const { return first_left_ > 0; }
  // Counts an eviction that was verified.
  void RecordVerified() { first_left_ -= first_left_ > 0; }
  // Records that the copy still was the block's content.
  void RecordUnchanged() { misses_ = 0, skip_ = 0, proven_ = true; }
  // Records that the block had changed, or was freed with its copy unused.
  void RecordUseless() {
    if (misses_ < 6) ++misses_;
    skip_ = static_cast<uint8_t>((1u << misses_) - 1);
    proven_ = false;
  }
  // Whether the last copy was of use.
  bool proven() const { return proven_; }

 private:
  uint8_t misses_ = 0;
  uint8_t skip_ = 0;
  uint8_t first_left_ = kFirstVerified;
  bool proven_ = false;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_STATE_COPY_BACKOFF_H_
