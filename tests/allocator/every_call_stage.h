// The stage that scenes of every_call_scenes play on: a device, its blocks with what must be in them, the
// operations of a scene, and what was seen. Each operation may be refused; what must never be is a problem of
// the report.

#ifndef SPILLWAY_TESTS_ALLOCATOR_EVERY_CALL_STAGE_H_
#define SPILLWAY_TESTS_ALLOCATOR_EVERY_CALL_STAGE_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "allocator/residency/transfer/mapping.h"
#include "tests/allocator/core_fixture.h"
#include "tests/fakes/failing_calls.h"
#include "tests/fakes/wait_until.h"

namespace spillway::allocator {

struct Failure {
  std::string call;  // empty: none, the calls are counted
  uint64_t nth = 0;
  fakes::FailMode mode = fakes::FailMode::kNone;
  std::string point;  // not empty: SIGKILL at this delay point instead
};

// What a played scene found, by way of a pipe.
struct Report {
  bool reached = false;               // the call that was to fail came
  std::string outcome;                // "success", or the first refusal's words
  std::vector<std::string> problems;  // what must not be
  std::vector<fakes::CallCount> counts;
};

// One scene under way: the device, the blocks with what must be in them, and what was seen.
class Stage {
 public:
  Stage(const CoreSetup& setup, Failure failure, Report* report)
      : setup_(setup), failure_(std::move(failure)), report_(report) {}

  bool Start() {
    absl::StatusOr<std::unique_ptr<CoreDevice>> device = CoreDevice::Create(setup_);
    if (device.ok()) {
      device_ = *std::move(device);
      return true;
    }
    Refused("start", device.status());
    return false;
  }
  CoreDevice& device() { return *device_; }
  void DropDevice() { device_ = nullptr; }

  // From here on calls count, and one fails.
  void Arm() { fakes::Arm(failure_.call, failure_.nth, failure_.mode); }
  // A failure that comes once is over; one that goes on, goes on.
  void AfterAct() {
    report_->counts = fakes::Counts();
    report_->reached = fakes::Reached();
    if (failure_.mode != fakes::FailMode::kFromThenOn) fakes::Disarm();
  }

  void Problem(const std::string& what) { report_->problems.push_back(what); }
  void Refused(const std::string& what, const absl::Status& status) {
    if (status.message().empty()) Problem(what + ": refused without a word");
    if (report_->outcome == "success")
      report_->outcome = what + ": " + std::string(status.message().substr(0, 200));
  }

  // ---- Steps. Each may be refused.

  static constexpr uint64_t kBlock = 256 << 10;  // 4 chunks

  // A new block with a content of its own; -1 when it was refused.
  int Add(uint64_t bytes = kBlock) {
    const absl::StatusOr<CUdeviceptr> address = device()->Allocate(bytes, {nullptr, false});
    if (!address.ok()) {
      Refused("allocation", address.status());
      return -1;
    }
    blocks_.push_back({*address, bytes, 0, false});
    const int block = static_cast<int>(blocks_.size()) - 1;
    Fill(block, 100 + block);
    return block;
  }
  void Fill(int block, uint64_t version) {
    if (block < 0) return;
    const uint64_t bytes = blocks_[block].bytes;
    const CUresult result = device().Launch(nullptr, {blocks_[block].address},
                                            [=](const auto& a) { CoreDevice::Fill(a[0], bytes, version); });
    if (!Launched("launch", result)) return;
    blocks_[block].version = version;
    blocks_[block].filled = Ended();
  }
  // A kernel that reads the block and compares.
  void Check(int block) {
    if (block < 0 || !blocks_[block].filled) return;
    auto wrong = std::make_shared<std::atomic<int64_t>>(-1);
    const uint64_t version = blocks_[block].version, bytes = blocks_[block].bytes;
    const CUresult result = device().Launch(nullptr, {blocks_[block].address}, [=](const auto& a) {
      wrong->store(static_cast<int64_t>(CoreDevice::Differences(a[0], bytes, version)));
    });
    if (!Launched("launch", result) || !Ended()) return;
    if (wrong->load() != 0)
      Problem("block " + std::to_string(block) + ": " + std::to_string(wrong->load()) + " words are wrong");
  }
  void CheckAll() {
    for (size_t block = 0; block < blocks_.size(); ++block) Check(static_cast<int>(block));
  }
  void Evict(int block) {
    if (block < 0) return;
    Settle();
    {
      const TableLock lock(device()->core()->table);
      Block* const record = At(block);
      if (record->state != BlockState::kResident || record->eviction.job != nullptr || record->pins != 0)
        return;
      device()->evictor()->StartLocked(lock, {record});
    }
    device()->thread()->Wake();
    Settle();
  }
  void CopyOut(int block) {
    if (block < 0) return;
    {
      const TableLock lock(device()->core()->table);
      if (At(block)->state != BlockState::kResident || At(block)->eviction.job != nullptr) return;
      device()->evictor()->CopyOutLocked(lock, At(block), policy::PlanTier::kHost);
    }
    device()->thread()->Wake();
    Settle();
  }
  void Prefetch(int block) {
    if (block < 0) return;
    Begin(block);
    device()->thread()->Wake();
    Settle();
  }
  void Begin(int block, bool in_vain = false) {
    ScopedContext scope(CoreDevice::Driver(), CoreDevice::Context());
    {
      TableLock lock(device()->core()->table);
      if (At(block)->state != BlockState::kSpilled) return;
      std::vector<ChunkHandle> handles;
      if (!TakeChunksLocked(device()->core(), device()->charges(), &lock, {At(block)->chunks}, &handles)) {
        return;
      }
      device()->faulter()->BeginLocked(lock, At(block), std::move(handles), /*prefetch=*/true);
      if (in_vain) Faulter::CancelLocked(lock, At(block));
    }
    const absl::Status started = device()->faulter()->Start(At(block));
    if (!started.ok()) Refused("prefetch", started);
  }
  // A prefetch that is taken back before its reads have begun.
  void PrefetchInVain(int block) {
    if (block < 0) return;
    Begin(block, /*in_vain=*/true);
    device()->thread()->Wake();
    Settle();
    if (failure_.call.empty() && device()->Stats().prefetches_cancelled == 0)
      Problem("nothing was taken back");
  }
  void Pin(int block) {
    if (block < 0) return;
    AccessSet set;
    device().addresses().Collect(blocks_[block].address, &set);
    std::vector<PinnedBlock> pinned;
    const absl::Status status = device()->Pin(set, PinReason::kPointerTable, &pinned);
    if (!status.ok()) Refused("pin", status);
    const BlockState state = State(block);
    if (status.ok() && state != BlockState::kResident && state != BlockState::kFaulting)
      Problem("a pinned block is not on the GPU, nor on its way there");
    device()->Unpin(pinned, PinReason::kPointerTable, {});
  }
  // The last block goes; its memory stays with us, in handles of its size.
  void FreeLast() {
    if (const absl::Status freed = device()->Free(blocks_.back().address); !freed.ok())
      Refused("free", freed);
    blocks_.pop_back();
  }
  // Something leaves for lack of memory, and the link is measured.
  void MeasureLink(int block) {
    device()->core()->pressure.store(true);
    Evict(block);
    const auto over = [&] {
      const ResidencyStats stats = device()->Stats();
      return stats.link_measurements + stats.link_measurements_dropped > 0;
    };
    const bool measured = Within(std::chrono::milliseconds(300), over);
    if (failure_.call.empty() && !measured) Problem("the link was not measured");
  }
  // The block fills the host tier: what is there already goes on to the disk.
  void Demote(int block) {
    Evict(block);
    const bool moved = Within(std::chrono::milliseconds(1500), [&] {
      device()->thread()->Wake();
      return device()->Stats().demoted_bytes > 0;
    });
    if (failure_.call.empty() && !moved) Problem("nothing was moved to the disk");
  }
  // Whether the driver released handles and created others since calls count.
  void ExpectOtherHandles() {
    if (!failure_.call.empty()) return;
    std::set<std::string> called;
    for (const fakes::CallCount& count : fakes::Counts()) called.insert(count.name);
    if (!called.contains("cuMemRelease") || !called.contains("cuMemCreate"))
      Problem("no handle was made anew");
  }
  void ExpectVerified() {
    if (failure_.call.empty() && device()->Stats().verified_evictions == 0) Problem("nothing was verified");
  }
  void ExpectComparedFetch() {
    if (failure_.call.empty() && device()->Stats().verified_fetches == 0) Problem("nothing was compared");
  }
  void AwaitHash() {
    if (!tests::WaitUntil([&] { return device()->hash()->Get() != nullptr; }, kLongestWait))
      Problem("no hash is loaded");
  }

  // The core has given the device up: nothing moves any more, and what was under way stays as it is.
  bool DeviceLost() { return device()->core()->error.first() != CUDA_SUCCESS; }

  // Waits until nothing is on its way, or the device is lost.
  void Settle() {
    if (stuck_ || tests::WaitUntil([&] { return DeviceLost() || !Moving(); }, kLongestWait)) return;
    if (report_->problems.empty()) Problem("something is still on its way");
    stuck_ = true;
  }
  bool stuck() const { return stuck_; }

  // Frees everything and looks for what is left. Objects of the driver cannot be given back when it refuses
  // everything.
  void FreeAll() {
    const bool refuses = Sticky() || DeviceLost() || failure_.mode == fakes::FailMode::kFromThenOn;
    for (const Known& block : blocks_) {
      if (const absl::Status freed = device()->Free(block.address); !freed.ok()) Refused("free", freed);
    }
    if (const absl::Status emptied = device()->EmptyCache(); !emptied.ok()) Refused("empty_cache", emptied);
    if (DeviceLost()) return blocks_.clear();  // copies may still be under way: what they use is kept
    const bool given =
        tests::WaitUntil([&] { return DeviceLost() || (!PiecesOut() && SlotsOut() == 0); }, kLongestWait);
    if (DeviceLost()) return blocks_.clear();  // while a freed block was being unmapped
    if (!given && PiecesOut()) Problem("pieces of host memory were not given back");
    if (!given && SlotsOut() != 0) Problem(std::to_string(SlotsOut()) + " slots were not given back");
    blocks_.clear();
    if (refuses) return;
    // What the failing call itself would have given back, and the device that it took along.
    const bool lost = failure_.mode == fakes::FailMode::kOnce && report_->reached &&
                      (failure_.call == "cuMemUnmap" || failure_.call == "cuMemRelease");
    if (lost) return;
    // A measurement of the link that has begun late still has a chunk.
    // What the host tier is made of stays as long as the process.
    const HostPool& host = device().host();
    const auto kept = static_cast<int64_t>(host.reachable() ? host.storage_capacity_bytes() : 0);
    const auto kept_chunks = kept / static_cast<int64_t>(host.buffer_bytes());
    const auto no_chunks = [&] {
      device()->EmptyCache().IgnoreError();
      return fakes::Objects().chunks == kept_chunks;
    };
    const bool released = tests::WaitUntil(no_chunks, kLongestWait);
    const fakes::DriverObjects objects = fakes::Objects();
    if (objects.mapped != kept) Problem(std::to_string(objects.mapped - kept) + " bytes are still mapped");
    if (!released) Problem(std::to_string(objects.chunks - kept_chunks) + " chunks were not given back");
    device()->CheckInvariants();
  }

  // Less than what a scene is given in all, so that a wait that does not end is told with its words.
  static constexpr std::chrono::seconds kLongestWait{20};

 private:
  struct Known {
    CUdeviceptr address;
    uint64_t bytes;
    uint64_t version;
    bool filled;  // its kernel has run
  };

  Block* At(int block) {
    return &device()->core()->table.at(device().addresses().Find(blocks_[block].address));
  }
  BlockState State(int block) {
    const TableLock lock(device()->core()->table);
    return At(block)->state;
  }
  bool Sticky() const { return failure_.mode == fakes::FailMode::kSticky && fakes::Reached(); }
  bool Launched(const char* what, CUresult result) {
    if (result == CUDA_SUCCESS) return true;
    std::string words = device()->LastError();
    const bool coded = result == fakes::kPlainError || result == fakes::kStickyError;
    if (coded && words.empty()) words = "the driver's error " + std::to_string(result);
    if (words.empty()) Problem(std::string(what) + " answered " + std::to_string(result) + " without a word");
    Refused(what, absl::InternalError(words));
    return false;
  }
  // Waits for it, waking the device's thread; `after_failure` at most where a call has failed, for then it
  // need not come. Whether it came.
  bool Within(std::chrono::milliseconds after_failure, const std::function<bool()>& what) {
    const auto over = [&] {
      if (what() || DeviceLost()) return true;
      device()->thread()->Wake();
      return false;
    };
    const bool ended = tests::WaitUntil(over, failure_.call.empty() ? kLongestWait : after_failure);
    return ended && what();
  }
  // Whether an eviction, a fetch or a mapping of a block is under way.
  bool Moving() {
    const TableLock lock(device()->core()->table);
    return std::ranges::any_of(blocks_, [&](const Known& block) {
      const Block& record = device()->core()->table.at(device().addresses().Find(block.address));
      return record.eviction.job != nullptr || record.fetch.job != nullptr || record.memory.mapping;
    });
  }
  // Whether what was launched has run.
  bool Ended() {
    ScopedContext scope(CoreDevice::Driver(), CoreDevice::Context());
    return CoreDevice::Driver()->cuCtxSynchronize() == CUDA_SUCCESS;
  }
  bool PiecesOut() {
    HostPool& host = device().host();
    bool out = host.storage_in_use() != 0;
    for (HostUse use : {HostUse::kEvictStaging, HostUse::kFaultStaging})
      out |= host.Free(use) != host.Limit(use);
    return out;
  }
  uint64_t SlotsOut() { return device().disk() == nullptr ? 0 : device().disk()->stats().slots_in_use; }

  const CoreSetup setup_;
  const Failure failure_;
  Report* const report_;
  std::unique_ptr<CoreDevice> device_;
  std::vector<Known> blocks_;
  bool stuck_ = false;  // nothing is to be expected any more
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_TESTS_ALLOCATOR_EVERY_CALL_STAGE_H_
