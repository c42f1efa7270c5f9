#include "integration/engine/kernel_passes.h"

#include <gtest/gtest.h>

namespace spillway::integration {
namespace {

using allocator::KernelPasses;

TEST(KernelPassesTest, NamesOfPyTorchsAndNvidiasKernels) {
  EXPECT_EQ(PassesOf("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"),
            KernelPasses::kOne);
  EXPECT_EQ(
      PassesOf("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor>"),
      KernelPasses::kOne);
  EXPECT_EQ(PassesOf("cuMemcpyDtoDAsync"), KernelPasses::kOne);
  EXPECT_EQ(PassesOf(""), KernelPasses::kOne);
  EXPECT_EQ(PassesOf("ampere_sgemm_128x64_tn"), KernelPasses::kMany);
  EXPECT_EQ(PassesOf("_ZN7cutlass6KernelI66cutlass_80_tensorop_s1688gemm"), KernelPasses::kMany);
  EXPECT_EQ(PassesOf("sm80_xmma_fprop_implicit_gemm_indexed"), KernelPasses::kMany);
  EXPECT_EQ(PassesOf("void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel"),
            KernelPasses::kMany);
  EXPECT_EQ(PassesOf("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits>"), KernelPasses::kMany);
  EXPECT_EQ(PassesOf("void at::native::(anonymous namespace)::embedding_backward_feature_kernel<float>"),
            KernelPasses::kAtomic);
  EXPECT_EQ(PassesOf("void at::native::_scatter_gather_elementwise_kernel<128, 8>"), KernelPasses::kAtomic);
  EXPECT_EQ(PassesOf("indexFuncLargeIndex"), KernelPasses::kAtomic);
}

}  // namespace
}  // namespace spillway::integration
