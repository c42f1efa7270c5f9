// A spill file has no name, keeps to its directory, and takes nothing when it cannot grow.

#include "io/store/spill_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/io/loop_mount.h"
#include "tests/io/store_helpers.h"

namespace spillway::io {
namespace {

using ::testing::HasSubstr;

TEST(SpillFileTest, HasNoNameEitherWay) {
  TestDirectory directory;
  for (const FileNaming naming : {FileNaming::kUnnamedIfPossible, FileNaming::kNamedThenUnlinked}) {
    const auto file =
        SpillFile::Create(directory.path(), FileSystemCheck::kNormal, DirectIo::kIfPossible, naming);
    ASSERT_TRUE(file.ok()) << file.status();
    struct stat info;
    ASSERT_EQ(fstat((*file)->fd(), &info), 0);
    EXPECT_EQ(info.st_nlink, 0u);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    EXPECT_TRUE(directory.Empty());
    EXPECT_TRUE((*file)->Grow(4u << 20).ok());
    ASSERT_EQ(fstat((*file)->fd(), &info), 0);
    EXPECT_EQ(info.st_size, 4 << 20);
    EXPECT_GE(info.st_blocks * 512, 4 << 20);  // preallocated, not sparse
  }
}

TEST(SpillFileTest, RemovesTheNameThatAKilledProcessLeft) {
  TestDirectory directory;
  const std::string left = directory.path() + "/.spillway-0123456789abcdef";
  const std::string other = directory.path() + "/.spillway-notes";
  for (const std::string& name : {left, other}) close(creat(name.c_str(), 0600));
  const auto file = SpillFile::Create(directory.path(), FileSystemCheck::kNormal, DirectIo::kIfPossible,
                                      FileNaming::kNamedThenUnlinked);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_NE(access(left.c_str(), F_OK), 0);
  EXPECT_EQ(access(other.c_str(), F_OK), 0);
}

TEST(SpillFileTest, AGrowthThatFailsTakesNothing) {
  LoopMount mount(64);
  if (!mount.mounted()) GTEST_SKIP() << "mounting a loop device is not permitted here";
  const auto file = SpillFile::Create(mount.path(), FileSystemCheck::kNormal, DirectIo::kIfPossible,
                                      FileNaming::kUnnamedIfPossible);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Grow(8u << 20).ok());
  const uint64_t free_before = FreeBytes(mount.path());
  const absl::Status status = (*file)->Grow(200u << 20);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(mount.path()));
  struct stat info;
  ASSERT_EQ(fstat((*file)->fd(), &info), 0);
  EXPECT_EQ(info.st_size, 8 << 20);
  EXPECT_GE(FreeBytes(mount.path()) + (1u << 20), free_before);
  EXPECT_TRUE((*file)->Grow(16u << 20).ok());
}

}  // namespace
}  // namespace spillway::io
