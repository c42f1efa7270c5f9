#include "policy/estimate/device_tape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spillway::policy {
namespace {

using ::testing::ElementsAre;

constexpr uint64_t kMega = 1 << 20;  // elements; 4 MiB in fp32

TEST(DeviceTapeTest, TheLastHandleFreesTheBlock) {
  DeviceTape tape;
  tape.StartIteration();
  Tensor a = tape.New(kMega, NumberType::kFp32);
  Tensor view = a;
  a = {};
  tape.Launch("reads", {view}, {});
  view = {};
  tape.Launch("later", {}, {});
  const TapeResult result = tape.Finish();
  ASSERT_EQ(result.workload.tensors.size(), 1u);
  EXPECT_EQ(*result.workload.tensors[0].life, (TensorLife{0, 0}));
}

TEST(DeviceTapeTest, CountsWhatALaunchMoves) {
  DeviceTape tape;
  tape.StartIteration();
  const Tensor a = tape.New(kMega, NumberType::kFp32), b = tape.New(kMega, NumberType::kBf16);
  tape.Launch("cast", {a}, {b, Tensor{}}, 7, true);
  const TapeResult result = tape.Finish();
  ASSERT_EQ(result.costs.size(), 1u);
  EXPECT_EQ(result.costs[0].bytes, 6.0 * kMega);
  EXPECT_EQ(result.costs[0].operations, 7);
  EXPECT_TRUE(result.costs[0].half);
  EXPECT_THAT(result.workload.kernels[0].inputs, ElementsAre(0));
  EXPECT_THAT(result.workload.kernels[0].outputs, ElementsAre(1));
}

// 3 MiB take two chunks; 1,000 bytes never move and are in a segment of small blocks.
TEST(DeviceTapeTest, BlocksAreWholeChunksAndSmallOnesStay) {
  DeviceTape tape;
  tape.StartIteration();
  const Tensor large = tape.New(3 * kMega, NumberType::kBool), small = tape.New(1000, NumberType::kBool);
  tape.Launch("both", {large, small}, {});
  const TapeResult result = tape.Finish();
  ASSERT_EQ(result.workload.tensors.size(), 1u);
  EXPECT_EQ(result.workload.tensors[0].bytes, 4 * kMega);
  EXPECT_EQ(result.peak_chunks, 4 * kMega);
  EXPECT_EQ(result.small_bytes, 2 * kMega);
  EXPECT_EQ(result.peak_allocated, 3 * kMega + 1024);
}

// PyTorch packs blocks of 1 MiB into segments of small ones; one byte more takes a chunk.
TEST(DeviceTapeTest, ABlockOf1MiBStaysAndALargerOneMoves) {
  DeviceTape tape;
  const Tensor small = tape.New(kMega, NumberType::kBool), same = tape.New(kMega, NumberType::kBool);
  EXPECT_EQ(tape.Finish().peak_chunks, 0u);

  DeviceTape other;
  const Tensor large = other.New(kMega + 1, NumberType::kBool);
  const TapeResult result = other.Finish();
  EXPECT_EQ(result.peak_chunks, 2 * kMega);
  EXPECT_EQ(result.small_bytes, 0u);
}

TEST(DeviceTapeTest, SaysWhatThePeakConsistsOf) {
  DeviceTape tape;
  const Tensor weight = tape.NewAs(kMega, NumberType::kFp32, Term::kWeights);
  const Term before = tape.SetTerm(Term::kLogits);
  EXPECT_EQ(before, Term::kActivations);
  { const Tensor logits = tape.New(2 * kMega, NumberType::kFp32); }
  tape.SetTerm(before);
  const Tensor after = tape.New(kMega, NumberType::kFp32);
  const TapeResult result = tape.Finish();
  EXPECT_EQ(result.terms[static_cast<size_t>(Term::kWeights)], 4 * kMega);
  EXPECT_EQ(result.terms[static_cast<size_t>(Term::kLogits)], 8 * kMega);
  EXPECT_EQ(result.terms[static_cast<size_t>(Term::kActivations)], 0u);
}

// A gradient that the next iteration drops lives over the iteration's end, as one tensor.
TEST(DeviceTapeTest, AGradientOverTheEndIsOneTensor) {
  DeviceTape tape;
  Tensor gradient = tape.New(kMega, NumberType::kFp32);
  tape.Rename(gradient, Term::kGradients, 0);
  const Tensor weight = tape.NewAs(kMega, NumberType::kFp32, Term::kWeights);
  tape.StartIteration();
  tape.Launch("forward", {weight, gradient}, {});
  gradient = {};
  tape.Launch("between", {weight}, {});
  gradient = tape.New(kMega, NumberType::kFp32);
  tape.Rename(gradient, Term::kGradients, 0);
  tape.Launch("backward", {weight}, {gradient});
  const TapeResult result = tape.Finish();
  ASSERT_TRUE(CheckWorkload(result.workload).ok()) << CheckWorkload(result.workload);
  const auto& first = result.workload.kernels[0].inputs;
  const uint32_t made = result.workload.kernels[2].outputs[0];
  EXPECT_TRUE(Names(first, made));
  EXPECT_EQ(*result.workload.tensors[made].life, (TensorLife{2, 0}));
  EXPECT_EQ(result.terms[static_cast<size_t>(Term::kGradients)], 4 * kMega);
}

TEST(DeviceTapeTest, WhatStaysIsPersistent) {
  DeviceTape tape;
  const Tensor weight = tape.New(kMega, NumberType::kFp32);
  tape.Launch("before the iteration", {weight}, {});
  tape.StartIteration();
  tape.Launch("reads", {weight}, {});
  const TapeResult result = tape.Finish();
  EXPECT_EQ(result.workload.kernels.size(), 1u);
  EXPECT_TRUE(result.workload.tensors[0].persistent);
}

}  // namespace
}  // namespace spillway::policy
