// A Residency without a GPU: records what it is asked, and answers as the test wants. For the tests of hooks,
// escape and prediction.

#ifndef SPILLWAY_TESTS_INTEGRATION_HOOKS_FAKE_RESIDENCY_H_
#define SPILLWAY_TESTS_INTEGRATION_HOOKS_FAKE_RESIDENCY_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "allocator/residency/residency.h"

namespace spillway::integration {

class FakeResidency : public allocator::Residency {
 public:
  struct Launch {
    std::vector<allocator::BlockId> set;
    allocator::StreamRef stream;
    uint64_t tag = 0;
    bool pinned = false;
  };
  struct PinCall {
    std::vector<allocator::BlockId> set;
    allocator::PinReason reason;
  };

  struct End {
    std::vector<allocator::PinnedBlock> held;
    allocator::PinReason reason;
    allocator::EscapedUsers users;
  };

  // What it answers.
  CUresult refuse = CUDA_SUCCESS;  // of Run, without calling the launch
  absl::Status pin_status;
  int helpful_attempt = -1;  // the attempt of GiveBack that gives anything back
  Range range;
  std::function<Range(allocator::BlockId)> range_of;
  uint64_t free_bytes = 0, total_bytes = 0;
  allocator::ResidencyStats stats;
  std::vector<allocator::BlockBytes> pinned_blocks;
  mutable int pinned_asked = 0;
  std::function<void()> inside_run;  // called before the launch

  // What it was asked.
  std::vector<Launch> launches;
  std::vector<PinCall> pins;
  std::vector<End> ends;
  std::map<std::pair<allocator::BlockId, allocator::PinReason>, int> pinned_now;
  std::vector<CUdeviceptr> frees;
  std::vector<CUstream> recorded, destroyed, captures_begun, captures_ended, overlaps;
  std::vector<std::pair<int, uint64_t>> releases;  // attempts and bytes wanted
  std::vector<std::shared_ptr<const policy::MigrationPlan>> plans;
  int64_t external_bytes = 0;
  uint64_t begun_bytes = 0, ended_bytes = 0, failed_bytes = 0;
  bool stopped = false;
  int launches_reaching_all = 0;

  absl::StatusOr<CUdeviceptr> Allocate(uint64_t, allocator::StreamRef, allocator::BlockRegion) override {
    return absl::UnimplementedError("not asked for by hooks");
  }
  absl::Status Free(CUdeviceptr address) override {
    if (address != range.base) return absl::InvalidArgumentError("no block starts here");
    frees.push_back(address);
    return absl::OkStatus();
  }
  absl::Status RecordStream(CUdeviceptr, CUstream stream) override {
    recorded.push_back(stream);
    return absl::OkStatus();
  }
  absl::Status EmptyCache() override { return absl::OkStatus(); }
  absl::StatusOr<Range> FindRange(CUdeviceptr address) const override {
    if (address < range.base || address >= range.base + range.bytes) return absl::NotFoundError("no block");
    return range;
  }
  CUresult Run(const allocator::AccessSet& set, allocator::StreamRef stream, uint64_t tag,
               absl::FunctionRef<CUresult()> launch) override {
    return Record(set, stream, tag, launch, false);
  }
  CUresult RunPinned(const allocator::AccessSet& set, allocator::StreamRef stream, uint64_t tag,
                     absl::FunctionRef<CUresult()> launch) override {
    return Record(set, stream, tag, launch, true);
  }
  CUresult RunReachingAll(const allocator::AccessSet& set, allocator::StreamRef stream, uint64_t tag,
                          absl::FunctionRef<CUresult()> launch) override {
    ++launches_reaching_all;
    return Record(set, stream, tag, launch, true);
  }
  void RecordOverlap(allocator::StreamRef stream) override { overlaps.push_back(stream.handle); }
  using Residency::Pin;
  absl::Status Pin(const allocator::AccessSet& set, allocator::PinReason reason,
                   std::vector<allocator::PinnedBlock>* held) override {
    if (!pin_status.ok()) return pin_status;
    pins.push_back({{set.begin(), set.end()}, reason});
    for (const allocator::BlockId id : set) {
      ++pinned_now[{id, reason}];
      if (held != nullptr) held->push_back({id, 1});
    }
    return pin_status;
  }
  void Unpin(const std::vector<allocator::PinnedBlock>& held, allocator::PinReason reason,
             const allocator::EscapedUsers& users) override {
    for (const allocator::PinnedBlock& block : held) --pinned_now[{block.id, reason}];
    ends.push_back({held, reason, users});
  }
  void FindRanges(const allocator::AccessSet& set, std::vector<Range>* ranges) const override {
    for (const allocator::BlockId id : set) {
      if (range_of) ranges->push_back(range_of(id));
    }
  }
  // Pins of the block for that reason that have not ended.
  int PinsOf(allocator::BlockId id, allocator::PinReason reason) const {
    const auto it = pinned_now.find({id, reason});
    return it == pinned_now.end() ? 0 : it->second;
  }
  void OnStreamDestroy(CUstream stream) override { destroyed.push_back(stream); }
  void OnCaptureBegin(CUstream stream) override { captures_begun.push_back(stream); }
  void OnCaptureEnd(CUstream stream) override { captures_ended.push_back(stream); }
  void OnExternalBytes(int64_t delta) override { external_bytes += delta; }
  void BeginExternalAllocation(uint64_t bytes) override { begun_bytes += bytes; }
  void EndExternalAllocation(uint64_t bytes, bool failed) override {
    (failed ? failed_bytes : ended_bytes) += bytes;
  }
  absl::Status StopEvicting() override {
    stopped = true;
    return absl::OkStatus();
  }
  bool GiveBack(int attempt, uint64_t bytes) override {
    releases.push_back({attempt, bytes});
    return attempt == helpful_attempt;
  }
  void SetPlan(std::shared_ptr<const policy::MigrationPlan> plan) override {
    plans.push_back(std::move(plan));
  }
  allocator::ResidencyStats Stats() const override {
    ++walks;
    return stats;
  }
  allocator::MachineStats Machine() const override { return stats; }
  mutable std::atomic<int> walks{0};  // of all blocks, for Stats
  ReservedBytes Reserved() const override { return {stats.chunk_bytes, stats.peak_chunk_bytes}; }
  std::vector<allocator::LargeBlock> LargestBlocks(size_t) const override { return {}; }
  std::vector<allocator::BlockBytes> PinnedBlocks() const override {
    ++pinned_asked;
    return pinned_blocks;
  }
  absl::Status Pause(const allocator::PauseScope&, allocator::PauseStats*) override {
    return absl::UnimplementedError("not asked for by hooks");
  }
  absl::Status Resume(const allocator::PauseScope&, bool) override {
    return absl::UnimplementedError("not asked for by hooks");
  }
  absl::Status ReadPaused(CUdeviceptr, std::byte*, uint64_t) const override {
    return absl::UnimplementedError("not asked for by hooks");
  }
  uint64_t SetCap(uint64_t bytes) override { return bytes; }
  uint64_t SetShare(uint64_t bytes) override { return bytes; }
  void PrepareShare(uint64_t) override {}
  allocator::ShareNeed GetShareNeed() const override { return {}; }
  bool Quiet() override { return true; }
  void MemoryInfo(uint64_t* free, uint64_t* total) const override {
    *free = free_bytes;
    *total = total_bytes;
  }
  std::string LastError() const override { return ""; }
  void Shutdown() override {}
  void AbandonAfterFork() override {}

 private:
  CUresult Record(const allocator::AccessSet& set, allocator::StreamRef stream, uint64_t tag,
                  absl::FunctionRef<CUresult()> launch, bool pinned) {
    launches.push_back({{set.begin(), set.end()}, stream, tag, pinned});
    if (inside_run) inside_run();
    return refuse != CUDA_SUCCESS ? refuse : launch();
  }
};

}  // namespace spillway::integration

#endif  // SPILLWAY_TESTS_INTEGRATION_HOOKS_FAKE_RESIDENCY_H_
