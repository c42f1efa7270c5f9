// What it costs to choose who leaves, by the number of blocks on the device, by the index and by a look at all. It happens
// on the device's thread, under the lock that slow launches, allocations and frees take, for every eviction that a
// launch waits for. Between two choices 16 blocks are used.
//
//   victim_bench [--most BLOCKS] [--json FILE]

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "policy/planner/victim_index.h"
#include "tests/command_line.h"
#include "tests/policy/planner/full_scan.h"

namespace spillway::bench {
namespace {

constexpr int kRepetitions = 51;
constexpr uint64_t kWanted = 64;  // chunks

double ThreadMicros() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

std::vector<policy::VictimCandidate> Candidates(size_t count, bool planned) {
  std::mt19937_64 random(count);
  std::vector<policy::VictimCandidate> candidates(count);
  for (size_t i = 0; i < count; ++i) {
    candidates[i] = {i, 1 + random() % 16, random() % 1'000'000, policy::kNever};
    if (planned && random() % 8 != 0) candidates[i].next_use = random() % 4'000;
  }
  return candidates;
}

struct Times {
  double index = 0;
  double full_scan = 0;
};

// Medians of the two choices, made in turn over the same blocks.
Times MedianMicros(std::vector<policy::VictimCandidate> candidates) {
  std::mt19937_64 random(7);
  policy::VictimIndex index;
  for (size_t i = 0; i < candidates.size(); ++i) index.Add(static_cast<uint32_t>(i));
  uint64_t uses = 1'000'000;
  std::vector<double> by_index;
  std::vector<double> by_scan;
  for (int i = 0; i < kRepetitions; ++i) {
    for (int use = 0; use < 16; ++use) candidates[random() % candidates.size()].last_use = ++uses;
    double start = ThreadMicros();
    const auto scanned = policy::SelectVictims(candidates, kWanted);
    by_scan.push_back(ThreadMicros() - start);
    start = ThreadMicros();
    const auto chosen = index.Select(
        kWanted, 0, 1,
        [&](uint32_t key) {
          return policy::VictimIndex::Facts{candidates[key].last_use, candidates[key].next_use};
        },
        [&](uint32_t key) { return candidates[key].bytes; });
    by_index.push_back(ThreadMicros() - start);
    if (chosen != scanned) return {-1, -1};
  }
  std::sort(by_index.begin(), by_index.end());
  std::sort(by_scan.begin(), by_scan.end());
  return {by_index[by_index.size() / 2], by_scan[by_scan.size() / 2]};
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) {
  using namespace spillway::bench;
  std::string json_file;
  int most = 100'000;
  spillway::CommandLine line{"Time of the choice of victims"};
  line.Add("--most", &most, "blocks in the largest case");
  line.Add("--json", &json_file, "write the figures here");
  line.Parse(argc, argv);
  nlohmann::json rows = nlohmann::json::array();
  std::printf("%8s %24s %24s   microseconds to find %llu chunks\n", "", "by last use", "with a plan",
              static_cast<unsigned long long>(kWanted));
  std::printf("%8s %12s %11s %12s %11s\n", "blocks", "index", "all", "index", "all");
  for (const int count : {100, 1'000, 10'000, 100'000}) {
    if (count > most) continue;
    const Times lru = MedianMicros(Candidates(count, false));
    const Times planned = MedianMicros(Candidates(count, true));
    std::printf("%8d %12.1f %11.1f %12.1f %11.1f\n", count, lru.index, lru.full_scan, planned.index,
                planned.full_scan);
    rows.push_back({{"blocks", count},
                    {"lru_us", lru.index},
                    {"lru_all_us", lru.full_scan},
                    {"planned_us", planned.index},
                    {"planned_all_us", planned.full_scan}});
  }
  if (!json_file.empty()) std::ofstream(json_file) << rows.dump(1) << "\n";
  return 0;
}
