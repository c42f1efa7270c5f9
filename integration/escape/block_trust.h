// BlockTrust implements SPILLWAY_TRUST=strict. It records which functions have named a block. A block may
// leave the GPU only when each of them has been launched more than once and none of them got the block's
// address inside a larger struct. The access-set builder records launches, on launching threads; the
// residency asks whether a block may leave. A kernel without a layout is the builder's to handle: it switches
// eviction off. No call fails. Two functions that share a bit may keep a block on the GPU without need; a
// shared bit never lets a block leave too early.

#ifndef SPILLWAY_INTEGRATION_ESCAPE_BLOCK_TRUST_H_
#define SPILLWAY_INTEGRATION_ESCAPE_BLOCK_TRUST_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "allocator/memory/block_id.h"
#include "allocator/residency/state/residency_options.h"
#include "io/os/sync.h"

namespace spillway::integration {

class BlockTrust final : public allocator::LeavePermission {
 public:
  BlockTrust();
  ~BlockTrust() override;

  // Records that a kernel with this tag is about to be launched with these blocks. Thread-safe; lock-free
  // once the kernel and the blocks are known.
  void RecordLaunch(uint64_t tag, const allocator::AccessSet& set);
  // Records that the blocks were named from inside a struct that was passed by value. Thread-safe.
  void RecordInStruct(const allocator::AccessSet& set);
  // Forgets what is known of the block. The caller does so before it frees the block, whose id goes to
  // another block then.
  void Forget(allocator::BlockId block);

  // Returns whether the block may leave the GPU. Thread-safe; lock-free.
  bool MayLeave(allocator::BlockId block) const override;

 private:
  static constexpr size_t kBits = 1024;  // functions differ by their tag's low bits
  static constexpr size_t kTags = 8192;  // distinct functions; a power of two
  static constexpr uint32_t kPageBlocks = 1024;
  static constexpr uint32_t kPages = 4096;

  struct Record {
    std::array<std::atomic<uint64_t>, kBits / 64> users{};
    std::atomic<bool> in_struct{false};
  };
  using Page = std::array<Record, kPageBlocks>;
  struct Tag {
    std::atomic<uint64_t> tag{0};
    std::atomic<bool> repeated{false};
  };

  // Records that the function was launched once more.
  void CountTag(uint64_t tag);
  Record& RecordOf(allocator::BlockId block);
  const Record* Find(allocator::BlockId block) const;

  // The number of functions with this bit that were launched only once, for each bit. A launch is counted
  // here before its blocks carry the bit.
  std::unique_ptr<std::atomic<uint32_t>[]> unproven_;
  std::unique_ptr<Tag[]> tags_;
  // The records of each device; released in RecordOf, acquired in Find. A page is never freed while launches
  // run.
  std::unique_ptr<std::atomic<Page*>[]> pages_;
  os::Mutex mu_{os::LockRank::kRegistry};  // serializes the creation of pages
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ESCAPE_BLOCK_TRUST_H_
