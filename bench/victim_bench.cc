// What it costs to choose who leaves, by the number of blocks on the device. It happens on the device's thread, under
// the lock that slow launches, allocations and frees take, for every eviction that a launch waits for.
//
//   victim_bench [--json FILE]

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "policy/victim.h"

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

double MedianMicros(const std::vector<policy::VictimCandidate>& candidates) {
  std::vector<double> times;
  for (int i = 0; i < kRepetitions; ++i) {
    const double start = ThreadMicros();
    const std::vector<uint32_t> chosen = policy::SelectVictims(candidates, kWanted);
    times.push_back(ThreadMicros() - start);
    if (chosen.empty()) return -1;
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) {
  using namespace spillway::bench;
  std::string json_file;
  CLI::App app{"Time of the choice of victims"};
  app.add_option("--json", json_file, "write the figures here");
  CLI11_PARSE(app, argc, argv);
  nlohmann::json rows = nlohmann::json::array();
  std::printf("%8s %14s %14s   microseconds to find %llu chunks\n", "blocks", "by last use", "with a plan",
              static_cast<unsigned long long>(kWanted));
  for (const size_t count : {400, 4'000, 20'000}) {
    const double lru = MedianMicros(Candidates(count, false));
    const double planned = MedianMicros(Candidates(count, true));
    std::printf("%8zu %14.1f %14.1f\n", count, lru, planned);
    rows.push_back({{"blocks", count}, {"lru_us", lru}, {"planned_us", planned}});
  }
  if (!json_file.empty()) std::ofstream(json_file) << rows.dump(1) << "\n";
  return 0;
}
