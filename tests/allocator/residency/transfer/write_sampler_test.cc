// Which accesses write, learnt from launches as they come: by hashes on the launch's own stream.

#include "allocator/residency/transfer/write_sampler.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <set>

#include "tests/allocator/motion_helpers.h"
#include "tests/fakes/gate.h"

namespace spillway::allocator {
namespace {

using policy::WriteFacts;
using policy::Writes;

constexpr uint64_t kReads = 11;         // reads both
constexpr uint64_t kWritesSecond = 12;  // reads the first, writes the second

policy::LaunchForm FormOf(uint64_t tag) { return {tag, 2}; }

class WriteSamplerTest : public testing::Test {
 protected:
  WriteSamplerTest() {
    setup_.host_bytes = 4 << 20;
    setup_.hash_code = &code_;
  }

  // A device under pressure whose hash is loaded: launches are looked at.
  void Begin() {
    device_ = std::make_unique<CoreDevice>(setup_);
    first_ = Filled(*device_, 1);
    second_ = Filled(*device_, 2);
    Core* const core = (*device_)->core();
    (*device_)->hash()->Stop();
    core->pressure.store(true);
  }
  void Launch(uint64_t tag) {
    const bool writes = tag == kWritesSecond;
    const uint64_t version = ++version_;
    const auto body = [=](const auto& a) {
      if (writes) CoreDevice::Fill(a[1], kBlock, version);
    };
    ASSERT_EQ(device_->Launch(nullptr, {first_, second_}, body, tag), CUDA_SUCCESS);
  }
  // Launches until `is_known` of what is learnt. Samples are spaced by time, by far more of it on a busy
  // machine: no number of launches is enough for one.
  void LaunchUntil(const std::vector<uint64_t>& tags,
                   const std::function<bool(const WriteFacts&)>& is_known) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(3);
    while (std::chrono::steady_clock::now() < deadline) {
      for (int i = 0; i < 256; i += static_cast<int>(tags.size())) {
        for (const uint64_t tag : tags) Launch(tag);
      }
      device_->Synchronize();
      const auto facts = (*device_)->LearntWrites();
      if (facts != nullptr && is_known(*facts)) return;
    }
  }
  Writes Learn(uint64_t tag, uint32_t place) {
    LaunchUntil({tag}, [&](const WriteFacts& facts) { return facts.Settled(FormOf(tag), place); });
    const auto facts = (*device_)->LearntWrites();
    return facts == nullptr ? Writes::kUnknown : facts->Of(FormOf(tag), place);
  }

  FixedHashCode code_;
  CoreSetup setup_;
  std::unique_ptr<CoreDevice> device_;
  CUdeviceptr first_ = 0, second_ = 0;
  uint64_t version_ = 100;
};

TEST_F(WriteSamplerTest, ReadersAndWritersAreToldApartByPlace) {
  Begin();
  EXPECT_EQ(Learn(kWritesSecond, 1), Writes::kYes);
  EXPECT_EQ(Learn(kWritesSecond, 0), Writes::kNo);
  EXPECT_EQ(Learn(kReads, 0), Writes::kNo);
  EXPECT_EQ(Learn(kReads, 1), Writes::kNo);
  const auto facts = (*device_)->LearntWrites();
  EXPECT_EQ(facts->Of(FormOf(kWritesSecond), 1), Writes::kYes);
  EXPECT_EQ(facts->Of(FormOf(kWritesSecond), 0), Writes::kNo);
  EXPECT_EQ((*device_)->LearntWrites(), facts) << "a new snapshot, though nothing new is known";
  (*device_)->CheckInvariants();
}

// An iteration of 16 launches: each is asked for sooner or later.
TEST_F(WriteSamplerTest, NoPlaceOfAnIterationIsPassedOver) {
  Begin();
  std::vector<uint64_t> iteration;
  for (uint64_t tag = 100; tag < 116; ++tag) iteration.push_back(tag);
  std::set<uint64_t> unknown(iteration.begin(), iteration.end());
  LaunchUntil(iteration, [&](const WriteFacts& facts) {
    std::erase_if(unknown, [&](uint64_t tag) { return facts.Settled(FormOf(tag), 0); });
    return unknown.empty();
  });
  EXPECT_TRUE(unknown.empty()) << unknown.size() << " of 16 were never looked at";
}

// What is settled is not looked at again.
TEST_F(WriteSamplerTest, LooksEndWhenNothingIsLeftToLearn) {
  Begin();
  ASSERT_EQ(Learn(kReads, 0), Writes::kNo);
  ASSERT_EQ(Learn(kReads, 1), Writes::kNo);
  device_->Synchronize();
  const uint64_t looks = (*device_)->writes()->samples();
  EXPECT_GE(looks, WriteFacts::kSamplesForNo);
  for (int i = 0; i < 2000; ++i) Launch(kReads);
  device_->Synchronize();
  EXPECT_LE((*device_)->writes()->samples(), looks + 1);  // one may have been on its way
}

// A block learnt to be read only is written by the same function: the drop finds out.
TEST_F(WriteSamplerTest, WhatIsLearntWrongCostsAWriteAndNoByte) {
  Begin();
  ASSERT_EQ(Learn(kReads, 1), Writes::kNo);
  device_->Synchronize();
  StartEviction(*device_, second_);
  WaitForState(*device_, second_, BlockState::kSpilled);
  EXPECT_EQ(Wrong(*device_, second_, 2), 0u);
  WaitForState(*device_, second_, BlockState::kResident);
  const auto liar = [](const auto& a) { CoreDevice::Fill(a[1], kBlock, 77); };
  ASSERT_EQ(device_->Launch(nullptr, {first_, second_}, liar, kReads), CUDA_SUCCESS);
  StartEviction(*device_, second_);
  WaitForState(*device_, second_, BlockState::kSpilled);
  EXPECT_EQ((*device_)->Stats().hash_mismatches, 1u);
  EXPECT_EQ((*device_)->Stats().clean_drops, 0u);
  EXPECT_EQ(Wrong(*device_, second_, 77), 0u);
}

// A profile may have been made by another PyTorch, or by somebody who lies.
TEST_F(WriteSamplerTest, AWrongGuessIsFoundAndCostsAWriteAndNoByte) {
  Begin();
  (*device_)->GuessWrites({{FormOf(kWritesSecond), 0b11, 0}});
  ASSERT_EQ((*device_)->LearntWrites()->Of(FormOf(kWritesSecond), 1), Writes::kNo);
  StartEviction(*device_, second_);
  WaitForState(*device_, second_, BlockState::kSpilled);
  EXPECT_EQ(Wrong(*device_, second_, 2), 0u);
  WaitForState(*device_, second_, BlockState::kResident);
  Launch(kWritesSecond);  // its copy off the GPU is none any more
  StartEviction(*device_, second_);
  WaitForState(*device_, second_, BlockState::kSpilled);
  EXPECT_EQ((*device_)->Stats().hash_mismatches, 1u);
  EXPECT_EQ((*device_)->Stats().clean_drops, 0u);
  EXPECT_EQ(Wrong(*device_, second_, version_), 0u);
  EXPECT_EQ(Learn(kWritesSecond, 1), Writes::kYes) << "the guess is believed for ever";
  EXPECT_EQ(Learn(kWritesSecond, 0), Writes::kNo);
}

TEST_F(WriteSamplerTest, WithoutAHashNothingIsLookedAt) {
  setup_.hash_code = nullptr;
  Begin();
  for (int i = 0; i < 500; ++i) Launch(kWritesSecond);
  device_->Synchronize();
  EXPECT_EQ((*device_)->writes()->samples(), 0u);
  EXPECT_EQ((*device_)->LearntWrites(), nullptr);
}

// Nothing is paid for by a job that fits.
TEST_F(WriteSamplerTest, WithoutPressureNothingIsLookedAt) {
  Begin();
  (*device_)->core()->pressure.store(false);
  for (int i = 0; i < 500; ++i) Launch(kWritesSecond);
  device_->Synchronize();
  EXPECT_EQ((*device_)->writes()->samples(), 0u);
}

// A stale pointer of the set need not be mapped.
TEST_F(WriteSamplerTest, FreedBlocksOfASetAreLeftAlone) {
  Begin();
  const CUdeviceptr freed = Filled(*device_, 3);
  ASSERT_TRUE((*device_)->Free(freed).ok());
  ASSERT_TRUE((*device_)->EmptyCache().ok());
  for (int i = 0; i < 3000; ++i) {
    ASSERT_EQ(device_->Launch(
                  nullptr, {freed, first_}, [](const auto&) {}, kReads),
              CUDA_SUCCESS);
    if (i % 64 == 0) device_->Synchronize();
  }
  device_->Synchronize();
  const auto facts = (*device_)->LearntWrites();
  if (facts != nullptr) {
    EXPECT_EQ(facts->Of(FormOf(kReads), 0), Writes::kUnknown);
  }
}

std::atomic<int> failing_queries{0};
CUresult QueryWithoutAnswer(CUevent event) {
  const CUresult answer = CoreDevice::Driver()->cuEventQuery(event);
  if (answer != CUDA_ERROR_NOT_READY || failing_queries.load() <= 0) return answer;
  failing_queries.fetch_sub(1);
  return CUDA_ERROR_UNKNOWN;
}

// The places of its results would be given to other hashes while the device still writes to them.
TEST_F(WriteSamplerTest, ALookWhoseEndTheDriverDoesNotTellIsNotOver) {
  CudaDriver driver = *CoreDevice::Driver();
  driver.cuEventQuery = &QueryWithoutAnswer;
  setup_.driver = &driver;
  Begin();
  tests::Gate go;
  const auto held = [wait = go.Wait()](const auto&) { wait(); };
  failing_queries.store(100);  // fewer than make an error the device's
  ASSERT_EQ(device_->Launch(nullptr, {first_, second_}, held, kReads), CUDA_SUCCESS);
  ASSERT_TRUE(tests::WaitUntil([&] {
    (*device_)->thread()->Wake();
    return failing_queries.load() <= 0;
  }));
  AwaitPolls(*device_, 2);
  EXPECT_EQ((*device_)->writes()->samples(), 0u);
  go.Open();
  device_->Synchronize();
  EXPECT_TRUE(tests::WaitUntil([&] {
    (*device_)->thread()->Wake();
    return (*device_)->writes()->samples() == 1;
  }));
  device_ = nullptr;
}

}  // namespace
}  // namespace spillway::allocator
