#include "integration/hooks/launch_reports.h"

#include <gmock/gmock.h>

#include "tests/integration/hooks/hook_fixture.h"

namespace spillway::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(LaunchAdviceTest, KnowsKernelsThatWorkOnLists) {
  const std::string apply =
      "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<3>, ";
  EXPECT_THAT(LaunchAdvice(apply + "PointwiseOpScalarFunctor<float, 3, 3, 0>>", 108),
              AllOf(HasSubstr("multi_tensor_apply_kernel"), HasSubstr(": foreach=False for the optimizer"),
                    HasSubstr("smaller parameter groups"), Not(HasSubstr("fused"))));
  EXPECT_THAT(LaunchAdvice(apply + "FusedAdamMathFunctor<float, 4, ADAM_MODE>>", 40),
              HasSubstr("fused=False with foreach=False for the optimizer"));
  EXPECT_THAT(LaunchAdvice(apply + "LpNormFunctor<float, NormType>>", 40),
              HasSubstr("foreach=False for clip_grad_norm_"));
  EXPECT_THAT(LaunchAdvice("aten::_foreach_addcdiv_.ScalarList", 6), HasSubstr(": foreach=False"));
  EXPECT_THAT(LaunchAdvice("aten::_fused_adamw_", 8), HasSubstr("fused=False"));
  // One flat parameter: there is nothing to take one at a time.
  EXPECT_EQ(LaunchAdvice("aten::_foreach_addcdiv_.ScalarList", 3),
            "The kernel is aten::_foreach_addcdiv_.ScalarList.");
  EXPECT_EQ(LaunchAdvice("aten::_fused_adamw_", 5), "The kernel is aten::_fused_adamw_.");
}

TEST(LaunchAdviceTest, SaysOfAnyOtherKernelOnlyWhatIsTrue) {
  EXPECT_EQ(LaunchAdvice("ampere_sgemm_128x64_nn", 3), "The kernel is ampere_sgemm_128x64_nn.");
  EXPECT_EQ(LaunchAdvice("", 3), "");
  EXPECT_THAT(LaunchAdvice("my_optimizer_kernel", 40),
              AllOf(HasSubstr("If it is"), HasSubstr("foreach=False")));
  EXPECT_THAT(LaunchAdvice("", 40), HasSubstr("If it is"));
  EXPECT_LT(LaunchAdvice(std::string(5000, 'x'), 1).size(), 300u) << "names of templates have no end";
}

class AuditorTest : public HookTest {};

TEST_F(AuditorTest, NamesKernelsAndCalls) {
  Publish();
  GetHookState()->functions.Find(Function());
  std::vector<Auditor::Kernel> recorded;
  Auditor auditor(&GetHookState()->functions, [&](const Auditor::Kernel& kernel) {
    recorded.push_back(kernel);
    return std::string("RECORDED");
  });
  auditor.OnPassed(0);
  testing::internal::CaptureStderr();
  auditor.OnFault({0, 7, HashName("test_kernel"), CUDA_ERROR_ILLEGAL_ADDRESS, {{0x1000, 64}}});
  auditor.OnFault({1, 8, HashName("cuMemcpyDtoHAsync"), CUDA_ERROR_LAUNCH_FAILED, {}});
  const std::string text = testing::internal::GetCapturedStderr();
  ASSERT_EQ(recorded.size(), 1u);
  EXPECT_EQ(recorded[0].name, "test_kernel");
  EXPECT_EQ(recorded[0].launch, 7u);
  EXPECT_NE(text.find("launch 7 on GPU 0 ended in CUDA_ERROR_ILLEGAL_ADDRESS: kernel test_kernel"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("1 block: 0x1000 (64 bytes). RECORDED"), std::string::npos) << text;
  EXPECT_NE(text.find("launch 8 on GPU 1 ended in CUDA_ERROR_LAUNCH_FAILED: cuMemcpyDtoHAsync"),
            std::string::npos)
      << text;
  EXPECT_EQ(auditor.Summary(), "audit: 3 launches, 2 faults");
}

}  // namespace
}  // namespace spillway::integration
