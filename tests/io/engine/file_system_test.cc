// Kinds of file systems: what a direct transfer means there, and what people are told.

#include "io/engine/file_system.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <unistd.h>

namespace spillway::io {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(FileSystemTest, LocalDisksAreTakenAtTheirWord) {
  for (const uint32_t magic : {uint32_t{EXT4_SUPER_MAGIC}, uint32_t{XFS_SUPER_MAGIC}}) {
    const FileSystemKind kind = KindOfMagic(magic, true);
    EXPECT_TRUE(kind.suitable && kind.direct_is_on_disk) << kind.name;
    EXPECT_THAT(kind.known, IsEmpty());
  }
}

TEST(FileSystemTest, WhatKeepsBytesElsewhereIsFlushedAndNamed) {
  const struct {
    uint32_t magic;
    const char* name;
  } kinds[] = {{0x65735546, "fuse"}, {0xff534d42, "cifs"}, {0x01021997, "9p"}, {0x2fc12fc1, "zfs"}};
  for (const auto& [magic, name] : kinds) {
    const FileSystemKind kind = KindOfMagic(magic, false);
    EXPECT_EQ(kind.name, name);
    EXPECT_TRUE(kind.suitable);
    EXPECT_FALSE(kind.direct_is_on_disk) << name;
    EXPECT_THAT(kind.known, HasSubstr("flushed")) << name;
  }
  for (const uint32_t magic : {0x794c7630u, 0x00c36400u, 0x0bd00bd0u, 0x47504653u})
    EXPECT_THAT(KindOfMagic(magic, false).known, Not(IsEmpty())) << magic;
}

TEST(FileSystemTest, MemoryAndNfsAreUnsuitable) {
  for (const uint32_t magic : {0x01021994u, 0x858458f6u, 0x6969u})
    EXPECT_FALSE(KindOfMagic(magic, false).suitable) << magic;
}

// A kind without a block device has its bytes from somebody: what they do is not known.
TEST(FileSystemTest, AKindThatIsNotKnownIsJudgedByItsBlockDevice) {
  EXPECT_EQ(KindOfMagic(0x12345, true).name, "0x12345");
  EXPECT_TRUE(KindOfMagic(0x12345, true).direct_is_on_disk);
  EXPECT_FALSE(KindOfMagic(0x12345, false).direct_is_on_disk);
  EXPECT_THAT(KindOfMagic(0x12345, false).known, HasSubstr("not known"));
}

TEST(FileSystemTest, LooksAtDescriptors) {
  const int memory = memfd_create("file_system_test", MFD_CLOEXEC);
  ASSERT_GE(memory, 0);
  EXPECT_EQ(KindOf(memory).name, "tmpfs");
  close(memory);
  EXPECT_EQ(KindOf(-1).name, "unknown");
}

}  // namespace
}  // namespace spillway::io
