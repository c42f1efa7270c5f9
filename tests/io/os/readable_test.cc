#include "io/os/readable.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

namespace spillway::os {
namespace {

constexpr uint64_t kPage = 4096;

TEST(IsReadableTest, TellsMappedMemoryFromOther) {
  void* const memory = mmap(nullptr, 3 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const auto start = reinterpret_cast<uint64_t>(memory);
  EXPECT_TRUE(IsReadable(start, 3 * kPage)) << "though nothing was ever written there";
  ASSERT_EQ(mprotect(static_cast<char*>(memory) + kPage, kPage, PROT_NONE), 0);
  EXPECT_TRUE(IsReadable(start, kPage));
  EXPECT_TRUE(IsReadable(start + kPage - 3, 3));
  EXPECT_FALSE(IsReadable(start + kPage - 3, 4)) << "the last byte";
  EXPECT_FALSE(IsReadable(start, 3 * kPage)) << "a page between two others";
  EXPECT_FALSE(IsReadable(start + kPage, 1));
  EXPECT_TRUE(IsReadable(start + 2 * kPage, kPage));
  ASSERT_EQ(munmap(memory, 3 * kPage), 0);
  EXPECT_FALSE(IsReadable(start, 1));
}

TEST(IsReadableTest, TakesAnyNumbers) {
  EXPECT_TRUE(IsReadable(0, 0));
  EXPECT_FALSE(IsReadable(0, 1));
  EXPECT_FALSE(IsReadable(UINT64_MAX, 1));
  EXPECT_FALSE(IsReadable(UINT64_MAX - 7, 8));
  EXPECT_FALSE(IsReadable(uint64_t{1} << 63, UINT64_MAX));
}

TEST(IsReadableTest, ChangesNoSignals) {
  sigset_t before, after;
  ASSERT_EQ(sigprocmask(SIG_BLOCK, nullptr, &before), 0);
  sigset_t all;
  sigfillset(&all);
  errno = 42;
  EXPECT_TRUE(IsReadable(reinterpret_cast<uint64_t>(&all), sizeof(all)));
  EXPECT_EQ(errno, 42);
  ASSERT_EQ(sigprocmask(SIG_BLOCK, nullptr, &after), 0);
  for (int signal = 1; signal < 32; ++signal)
    EXPECT_EQ(sigismember(&before, signal), sigismember(&after, signal)) << signal;
}

}  // namespace
}  // namespace spillway::os
