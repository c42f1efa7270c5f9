#include "integration/hooks/refusal_advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spillway::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(RefusalAdviceTest, KnowsKernelsThatWorkOnLists) {
  const std::string apply =
      "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<3>, ";
  EXPECT_THAT(RefusalAdvice(apply + "PointwiseOpScalarFunctor<float, 3, 3, 0>>", 108),
              AllOf(HasSubstr("multi_tensor_apply_kernel"), HasSubstr(": foreach=False for the optimiser"),
                    HasSubstr("smaller parameter groups"), Not(HasSubstr("fused"))));
  EXPECT_THAT(RefusalAdvice(apply + "FusedAdamMathFunctor<float, 4, ADAM_MODE>>", 40),
              HasSubstr("fused=False with foreach=False for the optimiser"));
  EXPECT_THAT(RefusalAdvice(apply + "LpNormFunctor<float, NormType>>", 40),
              HasSubstr("foreach=False for clip_grad_norm_"));
  EXPECT_THAT(RefusalAdvice("aten::_foreach_addcdiv_.ScalarList", 3), HasSubstr(": foreach=False"));
  EXPECT_THAT(RefusalAdvice("aten::_fused_adamw_", 3), HasSubstr("fused=False"));
}

TEST(RefusalAdviceTest, SaysOfAnyOtherKernelOnlyWhatIsTrue) {
  EXPECT_EQ(RefusalAdvice("ampere_sgemm_128x64_nn", 3), "The kernel is ampere_sgemm_128x64_nn.");
  EXPECT_EQ(RefusalAdvice("", 3), "");
  EXPECT_THAT(RefusalAdvice("my_optimizer_kernel", 40),
              AllOf(HasSubstr("If it is"), HasSubstr("foreach=False")));
  EXPECT_THAT(RefusalAdvice("", 40), HasSubstr("If it is"));
  EXPECT_LT(RefusalAdvice(std::string(5000, 'x'), 1).size(), 300u) << "names of templates have no end";
}

}  // namespace
}  // namespace spillway::integration
