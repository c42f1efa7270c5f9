#include "integration/hooks/hook_rows.h"

#include <gtest/gtest.h>

namespace spillway::integration {
namespace {

TEST(HookRowsTest, BaseNamesAndForms) {
  EXPECT_EQ(BaseNameOf("cuMemcpyHtoD_v2_ptds"), "cuMemcpyHtoD");
  EXPECT_EQ(BaseNameOf("cuMemcpy3DBatchAsync_v2"), "cuMemcpy3DBatchAsync");
  EXPECT_EQ(BaseNameOf("cuLaunchKernel_ptsz"), "cuLaunchKernel");
  EXPECT_EQ(BaseNameOf("cuMemsetD2D8"), "cuMemsetD2D8");
  EXPECT_TRUE(RowTraits<Row::cuMemcpy_ptds>::kInfo.per_thread_default);
  EXPECT_FALSE(RowTraits<Row::cuMemcpy>::kInfo.per_thread_default);
  EXPECT_TRUE(RowTraits<Row::cuMemcpy>::kInfo.synchronous);
  EXPECT_FALSE(RowTraits<Row::cuMemcpyAsync>::kInfo.synchronous);
  EXPECT_FALSE(RowTraits<Row::cuLaunchKernel>::kInfo.synchronous);
  EXPECT_EQ(RowTraits<Row::cuMemcpyDtoD_v2>::kInfo.tag, RowTraits<Row::cuMemcpyDtoD_v2_ptds>::kInfo.tag);
  EXPECT_NE(RowTraits<Row::cuMemcpyDtoD_v2>::kInfo.tag, RowTraits<Row::cuMemcpyDtoH_v2>::kInfo.tag);
}

}  // namespace
}  // namespace spillway::integration
