// Random operations against a model (core_model), over seeds; then the same with a rule of motion left out, each of
// which must be noticed.
//
//   SPILLWAY_TEST_SEEDS=20 SPILLWAY_TEST_OPERATIONS=100000 residency_model_test [--first-seed=1]

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/allocator/core_model.h"

namespace spillway::allocator {
namespace {

constexpr int kFullSeeds = 20;
constexpr int kFullOperations = 100'000;

int first_seed = 1;

int FromEnvironment(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

TEST(ResidencyModelTest, RandomOperationsKeepEveryByte) {
  const int seeds = FromEnvironment("SPILLWAY_TEST_SEEDS", 6);
  const int operations =
      FromEnvironment("SPILLWAY_TEST_OPERATIONS", seeds >= kFullSeeds ? kFullOperations : 6000);
  Coverage coverage;
  for (int seed = first_seed; seed < first_seed + seeds; ++seed) {
    const ModelResult result = RunModel(ModelOptions::FromSeed(seed, operations), &coverage);
    ASSERT_EQ(result.wrong_words, 0u) << "seed " << seed;
    EXPECT_TRUE(result.may_refuse || result.refused_launches == 0) << "seed " << seed;
  }
  const bool full = seeds >= kFullSeeds && operations >= kFullOperations;
  // The thinnest path must have been walked often, and in a short run once. Threads take turns of other lengths under
  // ThreadSanitizer.
#if defined(__SANITIZE_THREAD__)
  constexpr uint64_t kShortRun = 0;
#else
  constexpr uint64_t kShortRun = 1;
#endif
  EXPECT_GE(coverage.PrintAndLeast(full), full ? 100 : kShortRun);
}

// ---- Rules left out. Each run is a process of its own: what notices may end it.

constexpr int kMutantOperations = 4000;

// Where one run of a mutant happens to go well, the next has other operations: a rule counts as unnoticed
// when none of them notices.
constexpr int kMutantAttempts = 10;

// The same job with and without the rule: enough of what the rule is about. Three threads, two streams each.
ModelOptions OptionsFor(Mutant mutant, int attempt) {
  ModelOptions options = ModelOptions::FromSeed(5 + 60 * attempt, kMutantOperations);
  options.failures = false;
  options.host_bytes = 16 << 20;
  switch (mutant) {
    case Mutant::kNone:
    default: break;  // kNoHeadroom: FillUp; the others: tests/simulation
    case Mutant::kSkipSectionWait: options.delay_one_in = 4; break;
    case Mutant::kTrustOldCopy: break;
    case Mutant::kPublishBeforeEvent:
    case Mutant::kReuseDrainingBlock:
      options.copy_bandwidth = "500000000";  // a chunk takes 130 us
      break;
  }
  return options;
}

// As many blocks as are promised, in host memory and on the GPU, and launches on all of them in turn: 0 when
// each could be brought in.
int FillUp() {
  constexpr uint64_t kBytes = 4 * CoreDevice::kChunk;
  CoreSetup setup;
  setup.disk = false;
  setup.host_bytes = 2 << 20;
  CoreDevice device(setup);
  std::vector<CUdeviceptr> blocks;
  for (;;) {
    absl::StatusOr<CUdeviceptr> block = device->Allocate(kBytes, {});
    if (!block.ok()) break;
    blocks.push_back(*block);
  }
  std::atomic<uint64_t> wrong{0};
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < blocks.size(); ++i) {
      const auto body = [&wrong, round, i](const auto& a) {
        if (round > 0) wrong += CoreDevice::Differences(a[0], kBytes, i + 1);
        if (round == 0) CoreDevice::Fill(a[0], kBytes, i + 1);
      };
      if (device.Launch(nullptr, {blocks[i]}, body) != CUDA_SUCCESS) return 1;
    }
  }
  device.Synchronize();
  return wrong.load() == 0 ? 0 : 1;
}

// In the child: 0 when the job went well under `active`.
int RunMutant(Mutant like, Mutant active, int attempt) {
  active_mutant.store(active);
  if (like == Mutant::kNoHeadroom) return FillUp();
  const ModelResult result = RunModel(OptionsFor(like, attempt), nullptr);
  return result.wrong_words == 0 && result.refused_launches == 0 ? 0 : 1;
}

struct Ended {
  bool well = false;
  std::string how;
};

Ended RunInChild(Mutant like, Mutant active, int attempt) {
  const std::string argument = "--mutant=" + std::to_string(static_cast<int>(like)) + "," +
                               std::to_string(static_cast<int>(active)) + "," + std::to_string(attempt);
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(120);  // a hang is noticed too
    execl("/proc/self/exe", "residency_model_test", argument.c_str(), nullptr);
    _exit(127);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child) return {};
  if (WIFSIGNALED(status)) return {false, "signal " + std::to_string(WTERMSIG(status))};
  return {WEXITSTATUS(status) == 0, "exit status " + std::to_string(WEXITSTATUS(status))};
}

class MutantTest : public testing::TestWithParam<Mutant> {};

TEST_P(MutantTest, IsNoticed) {
  Ended mutated{true, ""};
  for (int attempt = 0; mutated.well && attempt < kMutantAttempts; ++attempt) {
    mutated = RunInChild(GetParam(), GetParam(), attempt);
  }
  EXPECT_FALSE(mutated.well) << "the rule can be left out unnoticed";
  EXPECT_NE(mutated.how, "exit status 127");
  const Ended control = RunInChild(GetParam(), Mutant::kNone, 0);
  EXPECT_TRUE(control.well) << "without the mutant: " << control.how;
}

std::string NameOf(const testing::TestParamInfo<Mutant>& mutant) {
  static constexpr const char* kNames[] = {
      "None", "SkipSectionWait", "PublishBeforeEvent", "ReuseDrainingBlock", "NoHeadroom", "TrustOldCopy"};
  return kNames[static_cast<int>(mutant.param)];
}

INSTANTIATE_TEST_SUITE_P(Rules, MutantTest,
                         testing::Values(Mutant::kSkipSectionWait, Mutant::kPublishBeforeEvent,
                                         Mutant::kReuseDrainingBlock, Mutant::kNoHeadroom,
                                         Mutant::kTrustOldCopy),
                         &NameOf);

}  // namespace

int RunModelTests(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    int like = 0;
    int active = 0;
    int attempt = 0;
    if (std::sscanf(argv[i], "--mutant=%d,%d,%d", &like, &active, &attempt) == 3) {
      return RunMutant(static_cast<Mutant>(like), static_cast<Mutant>(active), attempt);
    }
    std::sscanf(argv[i], "--first-seed=%d", &first_seed);
  }
  return RUN_ALL_TESTS();
}

}  // namespace spillway::allocator

int main(int argc, char** argv) { return spillway::allocator::RunModelTests(argc, argv); }
