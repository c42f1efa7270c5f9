// Two files together: who counts, and what is said of either.

#include "integration/settings/conf_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace spillway::integration {
namespace {

using ::testing::HasSubstr;

class ConfFilesTest : public ::testing::Test {
 protected:
  ConfFilesTest() {
    char folder[] = "/tmp/spillway_conf_XXXXXX";
    folder_ = ::mkdtemp(folder);
    paths_ = {folder_ + "/system.conf", folder_ + "/user.conf"};
  }
  ~ConfFilesTest() override { std::filesystem::remove_all(folder_); }
  static void Write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

  std::string folder_;
  ConfFiles::Paths paths_;
};

TEST_F(ConfFilesTest, TheUsersCountsBeforeTheSystems) {
  Write(paths_.system, "host_memory=1GiB\npolicy=lru\n[limits]\nhost_memory=4GiB\n");
  Write(paths_.user, "host_memory=2GiB\n");
  const ConfFiles files(paths_);
  EXPECT_TRUE(files.status().ok());
  EXPECT_STREQ(files.Value("host_memory"), "2GiB");
  EXPECT_EQ(files.Source("host_memory"), paths_.user + ":1: host_memory");
  EXPECT_STREQ(files.Value("policy"), "lru");
  EXPECT_EQ(files.Source("policy"), paths_.system + ":2: policy");
  EXPECT_EQ(files.Value("dirs"), nullptr);
  EXPECT_EQ(files.Source("dirs"), nullptr);
  SettingSource source;
  files.AddLimitsTo(&source);
  EXPECT_STREQ(source.limit("host_memory"), "4GiB");
  EXPECT_EQ(source.limit_described("host_memory"), paths_.system + ":4: host_memory");
  EXPECT_EQ(source.limit("policy"), nullptr);
  EXPECT_EQ(source.limit_described("policy"), nullptr);
}

TEST_F(ConfFilesTest, SaysWhatIsWrongWithEither) {
  EXPECT_TRUE(ConfFiles(paths_).status().ok()) << "neither is there";
  Write(paths_.user, "log\n");
  EXPECT_THAT(std::string(ConfFiles(paths_).status().message()), HasSubstr(paths_.user + ":1: "));
  Write(paths_.system, "log\n");
  EXPECT_THAT(std::string(ConfFiles(paths_).status().message()), HasSubstr(paths_.system + ":1: "));
  EXPECT_EQ(ConfFiles(paths_).Value("log"), nullptr);
}

TEST_F(ConfFilesTest, PathsAreThoseOfTheEnvironment) {
  ::setenv("SPILLWAY_CONF", paths_.user.c_str(), 1);
  const ConfFiles::Paths paths = ConfFiles::PathsOfProcess();
  ::setenv("SPILLWAY_CONF", "none", 1);
  const ConfFiles::Paths none = ConfFiles::PathsOfProcess();
  ::unsetenv("SPILLWAY_CONF");
  EXPECT_EQ(paths.system, "/etc/spillway.conf");
  EXPECT_EQ(paths.user, paths_.user);
  EXPECT_EQ(paths.user_kind, kConfNamed);
  EXPECT_EQ(none.system, "/etc/spillway.conf");
  EXPECT_EQ(none.user, "");
}

}  // namespace
}  // namespace spillway::integration
