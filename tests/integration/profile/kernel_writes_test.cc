#include "integration/profile/kernel_writes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spillway::integration {
namespace {

using policy::FormFacts;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Names of PyTorch 2.11's libtorch_cuda.so, the middle of some left out.
constexpr char kLayerNorm[] =
    "_ZN2at6native53_GLOBAL__N__21739cd4_20_layer_norm_kernel_cu_9c5ada8a28vectorized_layer_norm_"
    "kernelIN3c104HalfEfLb0E"
    "EEviT0_PKT_S8_S8_PS5_S9_PS6_";
constexpr char kAdd[] =
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_";
constexpr char kSoftmax[] =
    "_ZN43_GLOBAL__N__b6de9c8c_10_SoftMax_cu_9f978f6320softmax_warp_forwardIfffLi10ELb0ELb0EEEvPT0_PKT_"
    "iiiPKbib";

TEST(KernelBaseNameTest, IsTheNameBeforeTheTemplateArguments) {
  EXPECT_EQ(KernelBaseName(kLayerNorm), "vectorized_layer_norm_kernel");
  EXPECT_EQ(KernelBaseName(kAdd), "vectorized_elementwise_kernel");
  EXPECT_EQ(KernelBaseName(kSoftmax), "softmax_warp_forward");
  EXPECT_EQ(KernelBaseName("_ZN2at6nativeL6kernelEPf"), "kernel");
  EXPECT_EQ(KernelBaseName("_Z4copyPfPKf"), "copy");
  EXPECT_EQ(KernelBaseName("triton_poi_fused_add_0"), "triton_poi_fused_add_0");
  EXPECT_EQ(KernelBaseName("aten::mm"), "aten::mm");
}

TEST(KernelBaseNameTest, WhatIsCutOffHasTheNamesThatAreWhole) {
  EXPECT_EQ(KernelBaseName(""), "");
  EXPECT_EQ(KernelBaseName("_Z"), "");
  EXPECT_EQ(KernelBaseName("_ZN2at6native29vector"), "native");
  EXPECT_EQ(KernelBaseName("_ZN99999999999999999999999at"), "");
  EXPECT_EQ(KernelBaseName("_ZN0E"), "");
}

// Output, then inputs: all places but the first are inputs, whichever of them name blocks.
TEST(KnownWritesTest, ResultsFirst) {
  EXPECT_THAT(KnownWrites(kAdd, 9),
              ElementsAre(FormFacts{{9, 1}, 0, 1}, FormFacts{{9, 2}, 0b10, 1}, FormFacts{{9, 3}, 0b110, 1},
                          FormFacts{{9, 4}, 0b1110, 1}, FormFacts{{9, 5}, 0b11110, 1}));
  EXPECT_THAT(KnownWrites("aten::add_.Tensor", 9),
              ElementsAre(FormFacts{{9, 1}, 0, 1}, FormFacts{{9, 2}, 0b10, 1}));
  EXPECT_THAT(KnownWrites("aten::zero_", 9), ElementsAre(FormFacts{{9, 1}, 0, 1}));
}

// Inputs, then the output: with two blocks of three pointers the second may be either.
TEST(KnownWritesTest, ResultsLast) {
  EXPECT_THAT(KnownWrites("aten::mm", 9),
              ElementsAre(FormFacts{{9, 2}, 0b1, 0}, FormFacts{{9, 3}, 0b11, 0b100}));
  EXPECT_THAT(KnownWrites("aten::exp", 9), ElementsAre(FormFacts{{9, 2}, 0b1, 0b10}));
}

TEST(KnownWritesTest, WithoutResultsThatAreBlocksAllIsRead) {
  const std::vector<FormFacts> known = KnownWrites("aten::_foreach_norm.Scalar", 9);
  ASSERT_EQ(known.size(), 8u);
  EXPECT_EQ(known[7], (FormFacts{{9, 8}, 0xff, 0}));
}

// X is as large as Y, so a launch that names any block names X first.
TEST(KnownWritesTest, AnOperandAsLargeAsTheResultsIsTheFirstBlock) {
  const std::vector<FormFacts> known = KnownWrites(kLayerNorm, 9);
  ASSERT_EQ(known.size(), 6u);
  EXPECT_EQ(known[0], (FormFacts{{9, 1}, 0b1, 0}));
  EXPECT_EQ(known[1], (FormFacts{{9, 2}, 0b1, 0}));
  EXPECT_EQ(known[5], (FormFacts{{9, 6}, 0b111, 0b111000}));
}

// By the types alone: where the result has elements of fewer bytes it may be no block though an operand is.
TEST(KnownWritesTest, AnUnnamedNamespaceOfPyTorchsIsKnown) {
  ASSERT_FALSE(KnownWrites(kSoftmax, 9).empty());
  EXPECT_EQ(KnownWrites(kSoftmax, 9)[0], (FormFacts{{9, 2}, 0b10, 0}));
  EXPECT_EQ(KnownWrites(kSoftmax, 9)[1], (FormFacts{{9, 3}, 0b110, 0b1}));
}

// Of the same base name, and nobody knows what they do.
TEST(KnownWritesTest, KernelsOfOthersAreNotKnown) {
  EXPECT_THAT(KnownWrites("_ZN4mine29vectorized_elementwise_kernelIfEvPf", 9), IsEmpty());
  EXPECT_THAT(KnownWrites("_ZN2at4cuda13im2col_kernelIfEvPf", 9), IsEmpty());
  EXPECT_THAT(KnownWrites("_Z13im2col_kernelPfPKf", 9), IsEmpty());
  EXPECT_THAT(KnownWrites("im2col_kernel", 9), IsEmpty());
  EXPECT_THAT(KnownWrites("ampere_sgemm_128x64_nn", 9), IsEmpty());
  EXPECT_THAT(KnownWrites("aten::no_such_operator", 9), IsEmpty());
  EXPECT_THAT(KnownWrites("", 9), IsEmpty());
}

}  // namespace
}  // namespace spillway::integration
