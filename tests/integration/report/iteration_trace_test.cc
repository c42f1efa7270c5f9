#include "integration/report/iteration_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "policy/model/workload_file.h"
#include "policy/trace/recorded_workload.h"

namespace spillway::integration {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class IterationTraceTest : public ::testing::Test {
 protected:
  IterationTraceTest() : folder_(std::filesystem::path(::testing::TempDir()) / "iteration_trace_test") {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    path_ = folder_ / "iteration.trace";
  }
  ~IterationTraceTest() override { std::filesystem::remove_all(folder_); }

  // Two launches on two blocks, the second kept over the iteration's end.
  static Predictor::Followed TwoLaunches() {
    Predictor::Followed followed;
    policy::Trace& trace = followed.launches;
    trace.Restart(40);
    trace.AddAllocate(1, 2 << 20);
    trace.AddLaunch(11, std::vector<policy::TraceBlock>{1, 2});
    trace.AddFree(1);
    trace.AddLaunch(12, std::vector<policy::TraceBlock>{2});
    const policy::BlockSizes sizes = {{1, 2 << 20}, {2, 4 << 20}};
    policy::KernelTimes times;
    times.Add({policy::KindOf(11, std::vector<policy::Bytes>{2 << 20, 4 << 20})}, 1'500'000);
    followed.recorded = policy::MakeRecordedWorkload(trace, 40, 2, sizes, &times, nullptr);
    followed.samples = 1;
    return followed;
  }
  static std::string NameOf(uint64_t tag) { return tag == 11 ? "gemm<int, 4>\n" : ""; }
  static absl::StatusOr<policy::Workload> Read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream bytes;
    bytes << file.rdbuf();
    return policy::DecodeWorkload(bytes.str());
  }

  const std::filesystem::path folder_;
  std::string path_;
};

TEST_F(IterationTraceTest, WritesWhatCanBeReadAgain) {
  const auto lines = WriteIterationTraces(path_, {{0, TwoLaunches()}}, &NameOf);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], StartsWith("trace: GPU 0: " + path_ +
                                   " has an iteration of 2 launches (1 of them of measured kinds"));
  const auto workload = Read(path_);
  ASSERT_TRUE(workload.ok()) << workload.status();
  ASSERT_EQ(workload->kernels.size(), 2u);
  EXPECT_EQ(workload->kernels[0].name, "gemm<int; 4> ");  // as CSV can hold it
  EXPECT_EQ(workload->kernels[1].name, "");
  EXPECT_EQ(workload->kernels[0].duration, 1'500'000);
  EXPECT_EQ(workload->kernels[1].duration, 1'500'000);  // never measured: the typical time
  ASSERT_EQ(workload->tensors.size(), 2u);
  EXPECT_EQ(workload->tensors[0].bytes, uint64_t{2} << 20);
  EXPECT_FALSE(workload->tensors[0].persistent);
  EXPECT_TRUE(workload->tensors[1].persistent);
}

TEST_F(IterationTraceTest, SaysWhyThereIsNone) {
  EXPECT_THAT(WriteIterationTraces(path_, {}, &NameOf), ElementsAre(HasSubstr("nothing was ever allocated")));
  EXPECT_THAT(WriteIterationTraces(path_, {{3, std::nullopt}}, &NameOf),
              ElementsAre("trace: GPU 3: no file, since no iteration repeated"));
  EXPECT_FALSE(std::filesystem::exists(path_));
  const std::string nowhere = folder_ / "missing" / "iteration.trace";
  EXPECT_THAT(WriteIterationTraces(nowhere, {{0, TwoLaunches()}}, &NameOf),
              ElementsAre(HasSubstr("no file: ")));
}

TEST_F(IterationTraceTest, EachDeviceHasAFile) {
  const auto lines =
      WriteIterationTraces(path_, {{0, std::nullopt}, {1, TwoLaunches()}, {2, TwoLaunches()}}, &NameOf);
  EXPECT_EQ(lines.size(), 3u);
  EXPECT_TRUE(Read(path_).ok());
  EXPECT_TRUE(Read(path_ + ".gpu2").ok());
}

}  // namespace
}  // namespace spillway::integration
