// The kernel's word on the page cache: buffered transfers lie there, direct ones do not.

#include "io/engine/page_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "io/engine/aligned_buffer.h"
#include "tests/io/disk_fixture.h"

namespace spillway::io {
namespace {

constexpr uint64_t kFileBytes = 64u << 10;

int Opened(const std::string& directory, int flags) {
  return open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
}

class PageCacheTest : public DiskTest {
 protected:
  // Pages in the cache after a write and a read of `kFileBytes`.
  std::optional<uint64_t> CachedAfter(const std::string& directory, int flags) {
    const int fd = Opened(directory, flags);
    AlignedBuffer buffer(kFileBytes);
    FillPattern(buffer.data(), kFileBytes, 1);
    EXPECT_EQ(pwrite(fd, buffer.data(), kFileBytes, 0), static_cast<ssize_t>(kFileBytes));
    EXPECT_EQ(pread(fd, buffer.data(), kFileBytes, 0), static_cast<ssize_t>(kFileBytes));
    const std::optional<uint64_t> cached = CachedPages(fd, kFileBytes);
    close(fd);
    return cached;
  }
};

TEST_F(PageCacheTest, TellsBufferedTransfersFromDirectOnes) {
  MOUNT_OR_SKIP(64);
  EXPECT_EQ(CachedAfter(path(), 0), kFileBytes / kPageBytes);
  EXPECT_EQ(CachedAfter(path(), O_DIRECT), 0u);
}

// O_DIRECT is accepted there, and the bytes lie in the cache all the same.
TEST_F(PageCacheTest, SeesThroughAJournalOfData) {
  MOUNT_OR_SKIP({.mebibytes = 64, .options = "data=journal"});
  EXPECT_EQ(CachedAfter(path(), O_DIRECT), kFileBytes / kPageBytes);
  const int fd = Opened(path(), O_DIRECT);
  EXPECT_EQ(DirectAlignment(fd).value_or(0), 0u);
  close(fd);
}

TEST(PageCacheOfTest, WhatCannotBeLookedAtIsNotKnown) {
  EXPECT_EQ(CachedPages(-1, kFileBytes), std::nullopt);
  EXPECT_EQ(DirectAlignment(-1), std::nullopt);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(CachedPages(ends[0], kFileBytes), std::nullopt);
  for (const int end : ends) close(end);
}

}  // namespace
}  // namespace spillway::io
