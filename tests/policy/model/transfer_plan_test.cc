#include "policy/model/transfer_plan.h"

#include <gtest/gtest.h>

namespace spillway::policy {
namespace {

TEST(PiecesTest, TheLastOneMayBeShort) {
  EXPECT_EQ(PiecesOf(25, 10), 3u);
  EXPECT_EQ(PiecesOf(30, 10), 3u);
  EXPECT_EQ(PiecesOf(25, 0), 1u);  // whole
  EXPECT_EQ(BytesOfPieces(25, 10, 0, 2), 20u);
  EXPECT_EQ(BytesOfPieces(25, 10, 2, 3), 5u);
  EXPECT_EQ(BytesOfPieces(25, 10, 1, 1), 0u);
  EXPECT_EQ(BytesOfPieces(25, 0, 0, 1), 25u);
  EXPECT_EQ(BytesOfPieces(25, 0, 1, 1), 0u);
}

}  // namespace
}  // namespace spillway::policy
