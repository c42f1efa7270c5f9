// BlockTrust: SPILLWAY_TRUST=strict. It remembers which functions named a block, and lets the block leave the
// GPU only when each of them has been launched before and none was handed its address inside a larger struct.
// The access-set builders tell it of launches, on the launching threads; the residency asks it. What is known
// without it (no layout: eviction off) is the builders' business. Wrong in one direction only: two functions
// that share a bit may keep a block on the GPU.

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

  // A kernel of that tag is about to be launched with these blocks. Lock-free once it and they are known. Any
  // thread.
  void NoteLaunch(uint64_t tag, const allocator::AccessSet& set);
  // These were named from inside a struct by value.
  void NoteInStruct(const allocator::AccessSet& set);
  // Before the block is freed: what comes to lie there is another block.
  void Forget(allocator::BlockId block);

  bool MayLeave(allocator::BlockId block) const override;

 private:
  static constexpr size_t kBits = 1024;  // functions are told apart by their tag's low bits
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

  // Notes that the function was launched once more.
  void CountTag(uint64_t tag);
  Record& RecordOf(allocator::BlockId block);
  const Record* Find(allocator::BlockId block) const;

  // Of each bit: functions that were launched once. A launch adds before its blocks carry the bit.
  std::unique_ptr<std::atomic<uint32_t>[]> unproven_;
  std::unique_ptr<Tag[]> tags_;
  // Per device; release in RecordOf, acquire in Find. Never freed while launches run.
  std::unique_ptr<std::atomic<Page*>[]> pages_;
  os::Mutex mu_{os::LockRank::kRegistry};  // makes pages
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ESCAPE_BLOCK_TRUST_H_
