// Words of refusals: whose they are, how long they last, and who hears of them.

#include "allocator/driver/refusals.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "tests/allocator/core_fixture.h"

namespace spillway::allocator {
namespace {

int heard = 0;
void Hear() { ++heard; }

TEST(RefusalsTest, WordsAreTheThreadsAndTheLatestAreEverybodys) {
  Refusals refusals;
  EXPECT_STREQ(refusals.OfThisThread(), "");
  EXPECT_EQ(refusals.Latest(), "");
  refusals.Record(absl::ResourceExhaustedError("first"));
  std::thread([&] {
    EXPECT_STREQ(refusals.OfThisThread(), "");
    refusals.RecordCall(absl::InternalError("second"));
    EXPECT_STREQ(refusals.OfThisThread(), "second");
  }).join();
  EXPECT_STREQ(refusals.OfThisThread(), "first");
  EXPECT_EQ(refusals.Latest(), "second");
  refusals.Record(absl::OkStatus());
  EXPECT_STREQ(refusals.OfThisThread(), "first");
  refusals.Forget();
  EXPECT_STREQ(refusals.OfThisThread(), "");
  EXPECT_EQ(refusals.Latest(), "second");
}

TEST(RefusalsTest, OnlyACallIsTakenAndOnlyOnce) {
  Refusals refusals;
  refusals.Record(absl::ResourceExhaustedError("an allocation"));
  EXPECT_FALSE(refusals.TakeCall());
  refusals.RecordCall(absl::ResourceExhaustedError("a launch"));
  std::thread([&] { EXPECT_FALSE(refusals.TakeCall()); }).join();
  EXPECT_TRUE(refusals.TakeCall());
  EXPECT_STREQ(refusals.OfThisThread(), "a launch");
  EXPECT_FALSE(refusals.TakeCall());
  for (const bool by_note : {true, false}) {
    refusals.RecordCall(absl::ResourceExhaustedError("a launch"));
    if (by_note) {
      refusals.Record(absl::ResourceExhaustedError("an allocation"));
    } else {
      refusals.Forget();
    }
    EXPECT_FALSE(refusals.TakeCall());
  }
}

TEST(RefusalsTest, TheListenerHearsOfCallsAlone) {
  Refusals refusals;
  heard = 0;
  refusals.RecordCall(absl::ResourceExhaustedError("before"));
  refusals.SetListener(&Hear);
  refusals.Record(absl::ResourceExhaustedError("an allocation"));
  EXPECT_EQ(heard, 0);
  refusals.RecordCall(absl::ResourceExhaustedError("a launch"));
  EXPECT_EQ(heard, 1);
  refusals.SetListener(nullptr);
  refusals.RecordCall(absl::ResourceExhaustedError("a launch"));
  EXPECT_EQ(heard, 1);
}

TEST(RefusalsTest, OurNameIsLeftToWhoeverShowsTheWords) {
  Refusals refusals;
  refusals.Record(absl::ResourceExhaustedError("Spillway: no memory"));
  EXPECT_STREQ(refusals.OfThisThread(), "no memory");
  EXPECT_EQ(refusals.Latest(), "no memory");
}

TEST(RefusalsTest, ALongTextIsCut) {
  Refusals refusals;
  refusals.Record(absl::ResourceExhaustedError(std::string(5000, 'x')));
  EXPECT_EQ(std::string(refusals.OfThisThread()), std::string(Refusals::kMaxTextBytes - 1, 'x'));
  EXPECT_EQ(refusals.Latest().size(), 5000u);
}

TEST(RefusalsTest, TwoObjectsDoNotMixTheirWords) {
  Refusals one;
  {
    Refusals other;
    other.RecordCall(absl::ResourceExhaustedError("other's"));
    EXPECT_STREQ(one.OfThisThread(), "");
    EXPECT_FALSE(one.TakeCall());
  }
  Refusals later;  // perhaps at the same place
  EXPECT_STREQ(later.OfThisThread(), "");
}

TEST(RefusalsTest, ARefusedLaunchIsACall) {
  Refusals refusals;
  CoreSetup setup;
  setup.refusals = &refusals;
  CoreDevice device(setup);
  std::vector<CUdeviceptr> blocks;
  for (int i = 0; i < 9; ++i) blocks.push_back(device.MustAllocate(512 << 10));
  EXPECT_EQ(device.Launch(nullptr, blocks, [](const auto&) {}), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(device->LastError(), refusals.OfThisThread());
  EXPECT_NE(refusals.Latest().find("names 9 blocks of together"), std::string::npos) << refusals.Latest();
  EXPECT_TRUE(refusals.TakeCall());
}

}  // namespace
}  // namespace spillway::allocator
