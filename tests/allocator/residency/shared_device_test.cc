// A device that jobs share: its share grows before anything leaves, what does not fit waits for a greater one, and
// an idle job's blocks wait until it has one again.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "allocator/residency/state/gpu_share.h"
#include "tests/allocator/residency/pause_helpers.h"

namespace spillway::allocator {
namespace {

using ::testing::HasSubstr;

constexpr PauseScope kForIdleness = {PausedBy::kIdle, 0};
constexpr uint64_t kExternalShare = 64 << 10;

// The others leave `most`, and more while somebody waits.
class Share : public GpuShare {
 public:
  void Grow(uint64_t bytes) override {
    const uint64_t share = std::max(has, std::min(bytes, most));
    if (device != nullptr && share > has) (*device)->SetShare(has = share);
  }
  void Shrink() override {
    (*device)->PrepareShare((*device)->GetShareNeed().taken_bytes);
    has = (*device)->SetShare((*device)->GetShareNeed().taken_bytes);
  }
  absl::Status Await(uint64_t bytes, absl::FunctionRef<std::string()> name) override {
    names.push_back(name());
    if (!answer.ok()) return answer;
    if (ends) {
      (*device)->Shutdown();
      return absl::OkStatus();
    }
    const ShareNeed need = (*device)->GetShareNeed();
    most = std::max({most, bytes, need.least_bytes, need.wanted_bytes + need.away_bytes});
    Grow(most);
    return (*device)->Resume(kForIdleness, /*wait=*/false);
  }
  uint64_t growable_bytes() const override { return most - has; }

  CoreDevice* device = nullptr;
  uint64_t most = 4 << 20;
  uint64_t has = 0;
  std::vector<std::string> names;
  absl::Status answer;
  bool ends = false;
};

class SharedDeviceTest : public ::testing::Test {
 protected:
  explicit SharedDeviceTest() : device_(Setup(&share_)) { share_.device = &device_; }

  static CoreSetup Setup(Share* share) {
    CoreSetup setup = WithHost();
    setup.share = share;
    return setup;
  }
  // Without a launch for a while.
  PauseStats BeIdle() {
    const PauseStats stats = Pause(device_, kForIdleness);
    share_.Shrink();
    return stats;
  }

  Share share_;
  CoreDevice device_;
};

TEST_F(SharedDeviceTest, TheShareGrowsWithTheBlocks) {
  const std::vector<CUdeviceptr> blocks = AllocateFilled(device_, 3);
  EXPECT_EQ(share_.has, 3 * kBlock + kExternalShare);
  EXPECT_EQ(device_->Stats().share_bytes, share_.has);
  EXPECT_EQ(device_->Stats().own_limit_bytes, 0u);
  ExpectContents(device_, blocks);
  EXPECT_EQ(device_->Stats().evictions, 0u);
  EXPECT_TRUE(share_.names.empty());
}

TEST_F(SharedDeviceTest, WhatTheOthersHaveIsNotTaken) {
  share_.most = 4 * kBlock + kExternalShare;
  const std::vector<CUdeviceptr> blocks = AllocateFilled(device_, 7);
  ExpectContents(device_, blocks);
  EXPECT_LE(device_->Stats().peak_chunk_bytes, 4 * kBlock);
  EXPECT_GT(device_->Stats().evictions, 0u);
  EXPECT_TRUE(share_.names.empty());
}

TEST_F(SharedDeviceTest, AnAllocationThatNoLaunchCouldNameWaits) {
  share_.most = kBlock;
  const CUdeviceptr block = device_.MustAllocate(2 * kBlock);
  EXPECT_EQ(FillBlock(device_, block, 2 * kBlock, 1), CUDA_SUCCESS);
  EXPECT_THAT(share_.names, ::testing::ElementsAre("an allocation of 1.00 MiB"));
  share_.answer = absl::DeadlineExceededError("waits for long");
  const auto refused = device_->Allocate(3 * kBlock, {});
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("waits for long"));
}

TEST_F(SharedDeviceTest, WhatTheWholeDeviceCannotHoldIsRefusedAtOnce) {
  const auto refused = device_->Allocate(5 << 20, {});
  const std::string words(refused.status().message());
  EXPECT_THAT(words, HasSubstr("GPU memory is short for one launch"));
  EXPECT_THAT(words, ::testing::EndsWith("too little. To do: make the batch smaller"));
  EXPECT_TRUE(share_.names.empty());
}

TEST_F(SharedDeviceTest, ALaunchThatIsTooLargeWaits) {
  share_.most = 2 * kBlock + kExternalShare;
  const std::vector<CUdeviceptr> blocks = AllocateFilled(device_, 4);
  EXPECT_EQ(device_.Launch(nullptr, blocks,
                           [](const auto& all) {
                             for (const CUdeviceptr block : all) CoreDevice::Fill(block, kBlock, 9);
                           }),
            CUDA_SUCCESS);
  EXPECT_EQ(share_.names.size(), 1u);
  for (const CUdeviceptr block : blocks) EXPECT_EQ(Wrong(device_, block, 9), 0u);
}

TEST_F(SharedDeviceTest, PinsLeaveNoPlaceForALaunchThatWaits) {
  share_.most = 2 * kBlock + kExternalShare;
  const std::vector<CUdeviceptr> blocks = AllocateFilled(device_, 2);
  AccessSet set;
  set.Add(device_.addresses().Find(blocks[0]));
  ASSERT_TRUE(device_->Pin(set, PinReason::kExport).ok());
  const CUdeviceptr other = device_.MustAllocate(kBlock);
  EXPECT_EQ(device_.Launch(nullptr, {blocks[1], other}, [](const auto&) {}), CUDA_SUCCESS);
  EXPECT_EQ(share_.names.size(), 1u);
}

TEST_F(SharedDeviceTest, AnIdleJobHoldsNothingAndComesBackForALaunch) {
  const std::vector<CUdeviceptr> blocks = AllocateFilled(device_, 6);
  ASSERT_TRUE(tests::WaitUntil([&] { return device_->Quiet(); }));
  const PauseStats stats = BeIdle();
  EXPECT_EQ(stats.host_bytes, 6 * kBlock);
  EXPECT_EQ(device_->GetShareNeed().away_bytes, 6 * kBlock);
  EXPECT_EQ(share_.has, 0u);
  EXPECT_EQ(device_->Stats().chunk_bytes, 0u);
  EXPECT_EQ(device_->Stats().idle_pauses, 1u);
  ExpectContents(device_, blocks);
  EXPECT_EQ(share_.names.size(), 1u);
  EXPECT_EQ(device_->GetShareNeed().away_bytes, 0u);
}

TEST_F(SharedDeviceTest, IdlenessDropsNothing) {
  const CUdeviceptr cache = FilledIn(device_, {1, /*keep=*/false}, 3);
  EXPECT_EQ(BeIdle().dropped_bytes, 0u);
  EXPECT_EQ(Wrong(device_, cache, 3), 0u);
}

TEST_F(SharedDeviceTest, APauseOfTheJobInIdlenessDropsAndIsRefusedInWords) {
  const CUdeviceptr cache = FilledIn(device_, {1, /*keep=*/false}, 3);
  BeIdle();
  Pause(device_);
  EXPECT_EQ(StateOf(device_, cache), BlockState::kEmpty);
  EXPECT_EQ(FillOne(device_, cache, 4), CUDA_ERROR_ILLEGAL_STATE);
  Resume(device_);
  EXPECT_EQ(FillOne(device_, cache, 4), CUDA_SUCCESS);
  EXPECT_EQ(Wrong(device_, cache, 4), 0u);
}

TEST_F(SharedDeviceTest, AResumeOfTheJobsEndsIdleness) {
  const std::vector<CUdeviceptr> blocks = AllocateFilled(device_, 4);
  BeIdle();
  Pause(device_);
  Resume(device_, kAll, /*wait=*/true);
  for (const CUdeviceptr block : blocks) EXPECT_EQ(StateOf(device_, block), BlockState::kResident);
  EXPECT_TRUE(share_.names.empty());
}

TEST_F(SharedDeviceTest, IdlenessLeavesAPauseOfTheJobsAsItIs) {
  const std::vector<CUdeviceptr> blocks = AllocateFilled(device_, 2);
  Pause(device_);
  BeIdle();
  EXPECT_EQ(device_->GetShareNeed().away_bytes, 0u);
  EXPECT_EQ(FillOne(device_, blocks[0], 9), CUDA_ERROR_ILLEGAL_STATE);
  Resume(device_);
  ExpectContents(device_, blocks);
  EXPECT_TRUE(share_.names.empty());
}

TEST_F(SharedDeviceTest, ALaunchThatWaitsAtTheEndOfTheProcessGoesOn) {
  share_.most = 2 * kBlock + kExternalShare;
  const std::vector<CUdeviceptr> blocks = AllocateFilled(device_, 3);
  share_.ends = true;  // it returns since the device does not serve any more
  device_.Launch(nullptr, {blocks[0], blocks[1], blocks[2]}, [](const auto&) {});
  EXPECT_EQ(share_.names.size(), 1u) << "it does not wait again and again";
}

TEST_F(SharedDeviceTest, ExternalMemoryIsAskedForBeforeBlocksLeaveForIt) {
  const std::vector<CUdeviceptr> blocks = AllocateFilled(device_, 3);
  device_->BeginExternalAllocation(kBlock);
  device_->EndExternalAllocation(kBlock, /*failed=*/false);
  device_->OnExternalBytes(kBlock);
  EXPECT_GE(share_.has, 4 * kBlock);
  ExpectContents(device_, blocks);
  EXPECT_EQ(device_->Stats().evictions, 0u);
}

TEST_F(SharedDeviceTest, AResumeAsksForAShareFirst) {
  const std::vector<CUdeviceptr> blocks = AllocateFilled(device_, 6);
  Pause(device_);
  EXPECT_EQ(share_.has, 0u) << "at the end of the pause";
  Resume(device_, kAll, /*wait=*/true);
  for (const CUdeviceptr block : blocks) EXPECT_EQ(StateOf(device_, block), BlockState::kResident);
  EXPECT_TRUE(share_.names.empty());
}

// A share grows as the job asks, so plans are made for what it would get.
TEST_F(SharedDeviceTest, PlansCountOnWhatTheOthersLeave) {
  share_.most = 6 * kBlock + kExternalShare;
  AllocateFilled(device_, 2);
  EXPECT_EQ(device_->Machine().chunk_target_bytes, 6 * kBlock);
  Pause(device_);
  EXPECT_EQ(share_.has, 0u);
  EXPECT_GE(device_->Machine().chunk_target_bytes, 6 * kBlock);
}

TEST_F(SharedDeviceTest, FreeMemoryIsWhatTheOthersLeave) {
  uint64_t free = 0, total = 0;
  device_->MemoryInfo(&free, &total);
  EXPECT_EQ(free, 4u << 20);
  EXPECT_EQ(total, 4u << 20);
  share_.most = 3 * kBlock;
  AllocateFilled(device_, 2);
  device_->MemoryInfo(&free, &total);
  EXPECT_EQ(free, kBlock);
  EXPECT_EQ(total, 4u << 20);
}

TEST_F(SharedDeviceTest, ARunningKernelIsNoIdleness) {
  const CUdeviceptr block = device_.MustAllocate(kBlock);
  PauseStreams(true);
  EXPECT_EQ(device_.Launch(nullptr, {block}, [](const auto&) {}), CUDA_SUCCESS);
  EXPECT_FALSE(device_->Quiet());
  PauseStreams(false);
  EXPECT_TRUE(tests::WaitUntil([&] { return device_->Quiet(); }));
}

}  // namespace
}  // namespace spillway::allocator
