// Traces with damage at every place: an error that says where, or a workload that can be planned and
// simulated. Never a crash, endless memory or time that ran over.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "policy/bound/quick_bound.h"
#include "policy/model/workload_file.h"
#include "policy/planner/plan_search.h"
#include "policy/simulator/simulator.h"
#include "tests/policy/workload_helpers.h"

namespace spillway::policy {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

Machine SmallMachine() {
  Machine machine = PlainMachine(150 * kMega, 40 * kMega);
  machine.piece_bytes = 10 * kMega;
  return machine;
}

// The program's use of a trace that was read.
void Simulate(const Workload& workload, const std::string& what) {
  ASSERT_TRUE(CheckWorkload(workload).ok()) << what << ": " << CheckWorkload(workload);
  const Machine machine = SmallMachine();
  const Lifetimes lifetimes = FindLifetimes(workload, PlanSearch::LeastBytes(machine));
  const Nanos bound = FindQuickBound(workload, lifetimes, machine).Best();
  SearchOptions options;
  options.bound = bound;
  PlanSearch search(workload, lifetimes, machine, options);
  for (;;) {
    const auto more = search.Improve();
    if (!more.ok()) {
      EXPECT_TRUE(absl::IsResourceExhausted(more.status())) << what << ": " << more.status();
      return;
    }
    if (!*more) break;
  }
  const auto run = Execute(workload, lifetimes, machine, search.best(), {});
  ASSERT_TRUE(run.ok()) << what << ": " << run.status();
  EXPECT_GE(run->iteration + 10, bound) << what;
  EXPECT_LE(run->peak_gpu_bytes, machine.gpu_bytes) << what;
}

// `damaged` stands for the one file, `other` for the other one.
enum class Damaged { kKernels, kTensors };
int Try(Damaged which, const std::string& damaged, const std::string& other, const std::string& what) {
  const bool kernels = which == Damaged::kKernels;
  const auto workload = ParseCsvWorkload(kernels ? damaged : other, kernels ? other : damaged);
  if (workload.ok()) {
    Simulate(*workload, what);
    return 0;
  }
  EXPECT_THAT(std::string(workload.status().message()),
              ContainsRegex("(kernels|tensors)\\.csv.*(offset|no kernels)"))
      << what;
  return 1;
}

class DamagedCsvTest : public ::testing::TestWithParam<Damaged> {
 protected:
  DamagedCsvTest() {
    const Workload workload = MountainWorkload(5 * kMilli);
    kernels_ = KernelsCsv(workload);
    tensors_ = TensorsCsv(workload);
  }
  const std::string& Whole() const { return GetParam() == Damaged::kKernels ? kernels_ : tensors_; }
  const std::string& Other() const { return GetParam() == Damaged::kKernels ? tensors_ : kernels_; }
  std::string kernels_, tensors_;
};

TEST_P(DamagedCsvTest, EveryCut) {
  int errors = 0;
  for (size_t size = 0; size < Whole().size(); ++size)
    errors += Try(GetParam(), Whole().substr(0, size), Other(), "cut at " + std::to_string(size));
  EXPECT_GT(errors, static_cast<int>(Whole().find('\n')));  // within the header at least
}

TEST_P(DamagedCsvTest, EveryBit) {
  int errors = 0;
  for (size_t i = 0; i < Whole().size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = Whole();
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      errors +=
          Try(GetParam(), damaged, Other(), "bit " + std::to_string(bit) + " of byte " + std::to_string(i));
    }
  }
  EXPECT_GT(errors, static_cast<int>(Whole().size()));
}

// Digits more: sizes, times and numbers that are out of all proportion.
TEST_P(DamagedCsvTest, EveryPlaceWithDigitsMore) {
  for (size_t i = 0; i <= Whole().size(); ++i) {
    for (const char* digits : {"9", "99999999", "99999999999999999999", "1e300", "-", "\"", "\r\n", ","}) {
      std::string damaged = Whole();
      damaged.insert(i, digits);
      Try(GetParam(), damaged, Other(), std::string(digits) + " at " + std::to_string(i));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Both, DamagedCsvTest, ::testing::Values(Damaged::kKernels, Damaged::kTensors));

// FNV-1a, as the file's form has it.
std::string WithChecksum(const std::string& bytes) {
  uint64_t sum = 0xcbf29ce484222325u;
  for (char c : bytes) sum = (sum ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  std::string whole = bytes;
  for (int i = 0; i < 8; ++i) whole.push_back(static_cast<char>(sum >> (8 * i)));
  return whole;
}

// The checksum is made right, so that only the checks behind it stand between damage and the planner.
TEST(DamagedFileTest, EveryByteWithARightChecksumIsAnErrorOrAWorkload) {
  const std::string bytes = EncodeWorkload(MountainWorkload(5 * kMilli));
  const size_t end = bytes.size() - 8;
  ASSERT_EQ(WithChecksum(bytes.substr(0, end)), bytes);
  int errors = 0;
  for (size_t i = 0; i < end; ++i) {
    for (int value : {0, 1, 0x7f, 0x80, 0xff, bytes[i] ^ 1, bytes[i] ^ 0x40}) {
      std::string damaged = bytes.substr(0, end);
      damaged[i] = static_cast<char>(value);
      const auto workload = DecodeWorkload(WithChecksum(damaged));
      if (workload.ok()) {
        Simulate(*workload, "value " + std::to_string(value) + " at " + std::to_string(i));
      } else {
        ++errors;
        EXPECT_THAT(std::string(workload.status().message()), HasSubstr("at offset ")) << i;
        EXPECT_THAT(std::string(workload.status().message()), Not(HasSubstr("checksum"))) << i;
      }
    }
  }
  EXPECT_GT(errors, 100);
}

TEST(DamagedFileTest, NumbersOutOfAllProportionAreErrors) {
  Workload workload = MountainWorkload();
  workload.tensors[0].bytes = uint64_t{1} << 50;
  EXPECT_THAT(std::string(DecodeWorkload(EncodeWorkload(workload)).status().message()),
              HasSubstr("tensor 0: more than 100 TB together"));
  workload = MountainWorkload();
  workload.kernels[3].workspace_bytes = uint64_t{1} << 60;
  EXPECT_THAT(std::string(CheckWorkload(workload).message()), HasSubstr("kernel 3: more than 100 TB"));
  workload = MountainWorkload();
  for (WorkloadKernel& kernel : workload.kernels) kernel.duration = 100'000'000'000'000;
  EXPECT_THAT(std::string(CheckWorkload(workload).message()), HasSubstr("kernel 10: kernels that last"));
}

TEST(DamagedFileTest, NamesThatCsvCannotHoldAreChanged) {
  Workload workload = MountainWorkload();
  workload.kernels[0].name = "gemm<float, 4>\r\nnext";
  const auto again = ParseCsvWorkload(KernelsCsv(workload), TensorsCsv(workload));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->kernels[0].name, "gemm<float; 4>  next");
}

}  // namespace
}  // namespace spillway::policy
