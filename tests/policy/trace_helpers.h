// Small traces for tests of policy: launches written as lists, and random jobs with temporaries. The same
// seed gives the same job.

#ifndef SPILLWAY_TESTS_POLICY_TRACE_HELPERS_H_
#define SPILLWAY_TESTS_POLICY_TRACE_HELPERS_H_

#include <algorithm>
#include <random>
#include <vector>

#include "policy/trace/trace.h"

namespace spillway::policy {

// Launches by their tags: first, first + 1 and so on.
using Letters = std::vector<uint64_t>;
inline Letters Range(uint64_t first, size_t launches) {
  Letters letters;
  for (size_t i = 0; i < launches; ++i) letters.push_back(first + i);
  return letters;
}

struct TestLaunch {
  uint64_t tag = 0;
  std::vector<TraceBlock> blocks;
};

// Appends launches, each with a tag of its own place in the list.
inline void Append(Trace* trace, const std::vector<TestLaunch>& launches) {
  for (const TestLaunch& launch : launches) trace->AddLaunch(launch.tag, launch.blocks);
}

// An iteration of a random job: blocks that persist, and temporaries that are allocated before their first
// use and freed after their last, so that each has at least two uses.
struct RandomJob {
  struct Temporary {
    TraceBlock block = 0;
    uint32_t born = 0;   // before this launch
    uint32_t freed = 0;  // before this one, or after the last when it is the iteration's length
  };
  std::vector<TestLaunch> launches;
  std::vector<Temporary> temporaries;
  BlockSizes sizes;

  void AppendIterationTo(Trace* trace) const {
    for (uint32_t position = 0; position <= launches.size(); ++position) {
      for (const Temporary& one : temporaries) {
        if (one.freed == position) trace->AddFree(one.block);
      }
      for (const Temporary& one : temporaries) {
        if (one.born == position) trace->AddAllocate(one.block, sizes.at(one.block));
      }
      if (position < launches.size()) trace->AddLaunch(launches[position].tag, launches[position].blocks);
    }
  }
};

inline RandomJob MakeRandomJob(std::mt19937_64* random) {
  const auto below = [random](uint64_t n) { return (*random)() % n; };
  RandomJob job;
  const uint32_t launches = 4 + below(60);
  job.launches.resize(launches);
  for (uint32_t i = 0; i < launches; ++i) job.launches[i].tag = below(5);
  TraceBlock next = 1;
  const auto use = [&](uint32_t position, TraceBlock block) {
    auto& blocks = job.launches[position].blocks;
    if (std::find(blocks.begin(), blocks.end(), block) == blocks.end()) blocks.push_back(block);
  };
  for (uint64_t i = 0; i < 3 + below(20); ++i, ++next) {
    job.sizes[next] = 1 + below(8);
    for (uint64_t k = 0; k < 1 + below(4); ++k) use(below(launches), next);
  }
  for (uint64_t i = 0; i < below(20); ++i, ++next) {
    const uint32_t born = below(launches);
    const uint32_t last = born + below(launches - born);
    job.sizes[next] = 1 + below(8);
    job.temporaries.push_back({next, born, last + 1});
    use(born, next);
    use(last, next);
  }
  for (uint32_t i = 0; i < launches; ++i) {
    if (job.launches[i].blocks.empty()) use(i, 1);
  }
  return job;
}

}  // namespace spillway::policy

#endif  // SPILLWAY_TESTS_POLICY_TRACE_HELPERS_H_
