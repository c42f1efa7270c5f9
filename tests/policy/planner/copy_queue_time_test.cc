#include "policy/planner/copy_queue_time.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace spillway::policy {
namespace {

TEST(CopyQueueTimeTest, TakesTheEarliestAndTheLatest) {
  CopyQueueTime queue({10, 20, 30});
  EXPECT_EQ(queue.Free(0, 3), 60);
  EXPECT_EQ(queue.Free(1, 2), 20);
  EXPECT_EQ(queue.Free(2, 4), 40);   // over the end: kernels 2 and 0
  EXPECT_EQ(queue.Free(-1, 1), 40);  // the same, seen from the next iteration
  EXPECT_EQ(queue.Free(0, 300), 60);
  EXPECT_EQ(queue.TakeEarliest(0, 3, 15), 1);
  EXPECT_EQ(queue.Free(0, 1), 0);
  EXPECT_EQ(queue.Free(1, 2), 15);
  EXPECT_EQ(queue.TakeLatest(0, 3, 40), 1);
  EXPECT_EQ(queue.Free(0, 3), 5);
  EXPECT_EQ(queue.TakeEarliest(2, 5, 5), 4);  // kernel 1 of the next iteration
  EXPECT_EQ(queue.Free(0, 3), 0);
  EXPECT_EQ(queue.TakeEarliest(0, 3, 1), -1);  // there is none
  EXPECT_EQ(queue.TakeLatest(0, 3, 1), 3);
}

// Against plain arrays.
TEST(CopyQueueTimeTest, AgreesWithAPlainModel) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const int64_t size = 1 + static_cast<int64_t>(random() % 12);
    std::vector<Nanos> plain(static_cast<size_t>(size));
    for (Nanos& time : plain) time = random() % 4 == 0 ? 0 : static_cast<Nanos>(random() % 20);
    CopyQueueTime queue(plain);
    for (int step = 0; step < 30; ++step) {
      const int64_t begin = static_cast<int64_t>(random() % (3 * static_cast<uint64_t>(size))) - size;
      const int64_t end = begin + static_cast<int64_t>(random() % (static_cast<uint64_t>(size) + 1));
      const auto at = [&](int64_t p) -> Nanos& {
        return plain[static_cast<size_t>(((p % size) + size) % size)];
      };
      Nanos free = 0;
      for (int64_t p = begin; p < end; ++p) free += at(p);
      ASSERT_EQ(queue.Free(begin, end), free);
      Nanos time = free == 0 ? 0 : static_cast<Nanos>(random() % static_cast<uint64_t>(free + 1));
      const bool earliest = random() % 2 == 0;
      int64_t expected = earliest ? begin - 1 : end;
      const Nanos asked = time;
      for (int64_t p = earliest ? begin : end - 1; time > 0; p += earliest ? 1 : -1) {
        const Nanos taken = std::min(time, at(p));
        at(p) -= taken;
        time -= taken;
        if (taken > 0) expected = p;
      }
      ASSERT_EQ(earliest ? queue.TakeEarliest(begin, end, asked) : queue.TakeLatest(begin, end, asked),
                expected);
    }
  }
}

}  // namespace
}  // namespace spillway::policy
