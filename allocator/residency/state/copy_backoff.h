// CopyBackoff: what is known of an address's copies, which decides whether the next eviction hashes its
// bytes: to keep the copy, or to find a write that nobody saw. Guarded by the lock of the table of blocks.
// Nothing fails.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_STATE_COPY_BACKOFF_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_STATE_COPY_BACKOFF_H_

#include <cstdint>

namespace spillway::allocator {

// A block whose copy was of no use k times in a row is left alone for its next 2^k - 1 evictions, at most 63.
class CopyBackoff {
 public:
  // So many evictions of an address are verified, then those whose copy is kept.
  static constexpr int kFirstVerified = 8;

  // At an eviction that writes: whether its bytes are to be hashed and the copy kept. Counts the eviction.
  bool WantsHash() {
    if (skip_ == 0) return true;
    --skip_;
    return false;
  }
  // At the same eviction: whether its bytes are to be hashed so that a write that nobody saw is found.
  bool wants_verification() const { return first_left_ > 0; }
  // An eviction was verified.
  void NoteVerified() { first_left_ -= first_left_ > 0; }
  // The copy was the block's content still.
  void NoteUnchanged() { misses_ = 0, skip_ = 0, proven_ = true; }
  // The block had changed, or was freed with its copy unused.
  void NoteUseless() {
    if (misses_ < 6) ++misses_;
    skip_ = static_cast<uint8_t>((1u << misses_) - 1);
    proven_ = false;
  }
  // The last copy was of use.
  bool proven() const { return proven_; }

 private:
  uint8_t misses_ = 0;
  uint8_t skip_ = 0;
  uint8_t first_left_ = kFirstVerified;
  bool proven_ = false;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_STATE_COPY_BACKOFF_H_
