// Directories and links of other users are refused. Only root can make them: else the tests skip.

#include "io/store/directory_owner.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "io/store/spill_file.h"
#include "tests/io/store_helpers.h"

namespace spillway::io {
namespace {

using ::testing::HasSubstr;

constexpr uid_t kSelf = 12345, kStranger = 23456;

// In /var/tmp: the build's own folder may lie where only root can go.
class DirectoryOwnerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can make directories of other users";
    char name[] = "/var/tmp/spillway_owner_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    root_ = name;
    Make("", 0);
    Make("/mine", kSelf);
    Make("/theirs", kStranger);
    ASSERT_EQ(seteuid(kSelf), 0);
  }
  void TearDown() override {
    if (root_.empty()) return;
    EXPECT_EQ(seteuid(0), 0);
    EXPECT_EQ(std::system(("rm -rf " + root_).c_str()), 0);
  }

  // Everybody may write there, as in /tmp.
  void Make(const std::string& name, uid_t owner) const {
    const std::string path = root_ + name;
    mkdir(path.c_str(), 0700);
    EXPECT_EQ(chown(path.c_str(), owner, owner), 0);
    EXPECT_EQ(chmod(path.c_str(), 01777), 0);
  }
  void Link(const std::string& name, const std::string& target, uid_t owner) const {
    EXPECT_EQ(seteuid(0), 0);
    EXPECT_EQ(symlink(target.c_str(), (root_ + name).c_str()), 0);
    EXPECT_EQ(lchown((root_ + name).c_str(), owner, owner), 0);
    EXPECT_EQ(seteuid(kSelf), 0);
  }
  static absl::Status Check(const std::string& path) {
    const int fd = open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    const absl::Status status = CheckOwners(path, fd);
    if (fd >= 0) close(fd);
    return status;
  }

  std::string root_;
};

TEST_F(DirectoryOwnerTest, OnesOwnAndRootsAreTaken) {
  EXPECT_TRUE(Check(root_).ok());
  EXPECT_TRUE(Check(root_ + "/mine/").ok());
  Link("/mine/back", "../mine/.", kSelf);
  EXPECT_TRUE(Check(root_ + "/mine/back").ok()) << Check(root_ + "/mine/back");
}

TEST_F(DirectoryOwnerTest, AStrangersDirectoryIsRefused) {
  const absl::Status status = Check(root_ + "/theirs");
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("it belongs to user 23456, who is neither this one nor root"));
  const absl::Status file = SpillFile::Create(root_ + "/theirs", FileSystemCheck::kNormal, DirectIo::kNever,
                                              FileNaming::kUnnamedIfPossible)
                                .status();
  EXPECT_THAT(std::string(file.message()), HasSubstr(root_ + "/theirs: it belongs to user 23456"));
  EXPECT_THAT(std::string(file.message()), HasSubstr("owned by it or by root"));
}

// Also where a link of one's own leads to it. Root's folder is not sticky here, since the kernel refuses to
// follow strangers' links in such ones by itself.
TEST_F(DirectoryOwnerTest, AStrangersLinkIsRefused) {
  EXPECT_EQ(seteuid(0), 0);
  EXPECT_EQ(chmod(root_.c_str(), 0755), 0);
  Link("/shared", "mine", kStranger);
  Link("/first", root_ + "/shared", kSelf);
  for (const char* name : {"/shared", "/first", "/first/../shared"}) {
    const absl::Status status = Check(root_ + name);
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << name << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("the symbolic link " + root_ + "/shared"));
    EXPECT_THAT(std::string(status.message()), HasSubstr(" on the way to it belongs to user 23456"));
  }
  EXPECT_EQ(seteuid(0), 0);
  EXPECT_TRUE(Check(root_ + "/shared").ok()) << "root may use anybody's";
}

}  // namespace
}  // namespace spillway::io
