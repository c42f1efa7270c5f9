#include "integration/torch/out_of_memory.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/sizes.h"

namespace spillway::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Refusal Some() {
  Refusal refusal;
  refusal.device = 1;
  refusal.requested = 30 * kMiB + 1;
  refusal.free = 10 * kMiB;
  refusal.total = 100 * kMiB;
  refusal.allocated = 60 * kMiB;
  refusal.reserved = 64 * kMiB;
  return refusal;
}

TEST(OutOfMemoryTest, AsksForWhatNativeWouldHave) {
  EXPECT_EQ(NativeAllocationBytes(1), 20 * kMiB);
  EXPECT_EQ(NativeAllocationBytes(10 * kMiB - 1), 20 * kMiB);
  EXPECT_EQ(NativeAllocationBytes(10 * kMiB), 10 * kMiB);
  EXPECT_EQ(NativeAllocationBytes(10 * kMiB + 1), 12 * kMiB);
}

// Scripts look for PyTorch's words.
TEST(OutOfMemoryTest, ItsTextIsPyTorchsWithOneLineOfOurs) {
  Refusal refusal = Some();
  std::string text = OutOfMemoryText(refusal);
  EXPECT_THAT(text,
              ::testing::StartsWith("CUDA out of memory. Tried to allocate 32.00 MiB. GPU 1 has a total "
                                    "capacity of 100.00 MiB of which 10.00 MiB is free. "));
  EXPECT_THAT(text, HasSubstr("this process has 90.00 MiB memory in use"));
  EXPECT_THAT(text, HasSubstr("60.00 MiB is allocated by PyTorch, and 4.00 MiB is reserved"));
  EXPECT_THAT(text, Not(HasSubstr("allowed")));
  EXPECT_THAT(text, HasSubstr("\nSpillway: the block does not fit"));
  refusal.allowed = 50 * kMiB;
  refusal.reason = "the host tier is full";
  text = OutOfMemoryText(refusal);
  EXPECT_THAT(text, HasSubstr("50.00 MiB allowed; "));
  EXPECT_THAT(text, ::testing::EndsWith("\nSpillway: the host tier is full"));
}

TEST(OutOfMemoryTest, ObserversAreToldBeforeItIsThrown) {
  std::vector<size_t> told;
  const auto observe = [&told](int64_t device, size_t bytes, size_t limit, size_t free) {
    told = {static_cast<size_t>(device), bytes, limit, free};
  };
  EXPECT_THROW(ThrowOutOfMemory(Some(), {observe}), c10::OutOfMemoryError);
  EXPECT_EQ(told, (std::vector<size_t>{1, 32 * kMiB, 100 * kMiB, 10 * kMiB}));
}

}  // namespace
}  // namespace spillway::integration
