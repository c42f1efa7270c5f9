#include "integration/report/stale_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "integration/report/prometheus.h"

namespace spillway::integration {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::time_t kNow = 1'800'000'000;
constexpr int kAlive = 41, kEnded = 42;

class StaleMetricsTest : public ::testing::Test {
 protected:
  StaleMetricsTest() {
    char folder[] = "/tmp/spillway_stale_XXXXXX";
    folder_ = ::mkdtemp(folder);
  }
  ~StaleMetricsTest() override { std::filesystem::remove_all(folder_); }

  // A file that the process `pid` wrote so many seconds before kNow.
  void Write(const std::string& name, int pid, int age, const std::string& before = "") {
    PrometheusLabels labels;
    labels.pid = pid;
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << before << PrometheusText(Metrics(), labels);
    const timespec time = {kNow - age, 0}, times[] = {time, time};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW), 0);
  }
  int Remove(const std::string& pattern) const {
    return RemoveStaleMetrics(folder_ + "/" + pattern, kNow, [](int pid) { return pid == kAlive; });
  }
  std::set<std::string> Left() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      names.insert(entry.path().filename());
    return names;
  }

  std::string folder_;
};

TEST_F(StaleMetricsTest, OnlyThoseOfEndedProcessesThatNobodyWrites) {
  Write("job-41.prom", kAlive, 600);
  Write("job-42.prom", kEnded, 600);
  Write("job-43.prom", kEnded, kStaleSeconds);
  Write("job-44.prom", kAlive, kForgottenSeconds + 1);
  EXPECT_EQ(Remove("job-%p.prom"), 2);
  EXPECT_THAT(Left(), ElementsAre("job-41.prom", "job-43.prom")) << "alive, and too young";
}

TEST_F(StaleMetricsTest, OnlyNamesOfThePattern) {
  for (const char* name :
       {"job-7.prom", "job-.prom", "job-7x.prom", "job-7.promx", "xjob-7.prom", "job-7-3.prom"})
    Write(name, kEnded, 600);
  EXPECT_EQ(Remove("job-%p.prom"), 1);
  EXPECT_EQ(Left().count("job-7.prom"), 0u);
  EXPECT_EQ(Remove("job-%p-%r.prom"), 1);
  EXPECT_EQ(Left().size(), 4u);
}

TEST_F(StaleMetricsTest, FurtherRanksWhereTheNameTellsNoneApart) {
  for (const char* name : {"job.prom", "job.rank1.prom", "job.rank12.prom", "job.rank.prom"})
    Write(name, kEnded, 600);
  EXPECT_EQ(Remove("job.prom"), 2);
  EXPECT_THAT(Left(), ElementsAre("job.prom", "job.rank.prom")) << "the first rank's is about to be replaced";
}

TEST_F(StaleMetricsTest, OnlyOfThisHostWhereTheNameHasIt) {
  Write(HostName() + "-7.prom", kEnded, 600);
  Write("elsewhere-7.prom", kEnded, 600);
  EXPECT_EQ(Remove("%h-%p.prom"), 1);
  EXPECT_THAT(Left(), ElementsAre("elsewhere-7.prom"));
}

TEST_F(StaleMetricsTest, OnlyWhatBeginsAsOursDoAndIsAFile) {
  Write("job-1.prom", kEnded, 600, "# HELP node_load1 1m\n");
  std::ofstream(folder_ + "/job-2.prom") << "";
  std::ofstream(folder_ + "/job-3.prom")
      << "# HELP spillway_build_info x\nspillway_build_info{pid=\"x\"} 1\n";
  std::filesystem::create_directory(folder_ + "/job-4.prom");
  Write("other", kEnded, 600);
  std::filesystem::create_symlink(folder_ + "/other", folder_ + "/job-5.prom");
  ASSERT_EQ(::mkfifo((folder_ + "/job-6.prom").c_str(), 0600), 0);
  const size_t before = Left().size();
  const int removed =
      RemoveStaleMetrics(folder_ + "/job-%p.prom", std::time(nullptr) + 10'000, [](int) { return false; });
  EXPECT_EQ(removed, 0);
  EXPECT_EQ(Left().size(), before);
}

TEST_F(StaleMetricsTest, OtherUsersStay) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  Write("job-7.prom", kEnded, 600);
  ASSERT_EQ(::chown((folder_ + "/job-7.prom").c_str(), 12345, 0), 0);
  EXPECT_EQ(Remove("job-%p.prom"), 0);
}

TEST_F(StaleMetricsTest, NoFolderThatDiffersOrIsNotThere) {
  Write("job.prom", kEnded, 600);
  EXPECT_EQ(Remove("%p/job.prom"), 0);
  EXPECT_EQ(Remove("none/job-%p.prom"), 0);
  EXPECT_EQ(RemoveStaleMetrics("", kNow, [](int) { return false; }), 0);
}

TEST(ProcessIsThereTest, KnowsTheLivingAndTheEnded) {
  EXPECT_TRUE(ProcessIsThere(::getpid()));
  EXPECT_TRUE(ProcessIsThere(1));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_FALSE(ProcessIsThere(child));
}

}  // namespace
}  // namespace spillway::integration
