#include "integration/report/kernel_name.h"

#include <gtest/gtest.h>

#include <string>

namespace spillway::integration {
namespace {

TEST(KernelNameTest, ANameThatIsShortEnoughStays) {
  const std::string name(kLongestKernelName, 'k');
  EXPECT_EQ(ShortKernelName(name), name);
  EXPECT_EQ(ShortKernelName("gemm<4, 8>"), "gemm<4, 8>");
  EXPECT_EQ(ShortKernelName(""), "");
}

TEST(KernelNameTest, NamesThatDifferAtTheirEndsStayDifferent) {
  const std::string middle(400, 'x');
  const std::string a = ShortKernelName("void kernel<" + middle + "AddFunctor<float>>(int)");
  const std::string b = ShortKernelName("void kernel<" + middle + "MulFunctor<float>>(int)");
  EXPECT_NE(a, b);
  EXPECT_EQ(a.size(), kLongestKernelName);
  EXPECT_EQ(a.substr(0, 13), "void kernel<x");
  EXPECT_EQ(a.substr(a.size() - 23), "AddFunctor<float>>(int)");
  EXPECT_NE(a.find("x...x"), std::string::npos);
}

}  // namespace
}  // namespace spillway::integration
