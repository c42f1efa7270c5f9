#include "tests/simulation/mutants.h"

#include "allocator/residency/test_points.h"

namespace spillway::simulation {
namespace {

using allocator::Mutant;

struct Row {
  const char* name;
  Mutant mutant;
};

constexpr Row kRows[] = {
    {"kSkipSlotWait", Mutant::kSkipSlotWait},
    {"kPublishBeforeEvent", Mutant::kPublishBeforeEvent},
    {"kReuseDrainingBlock", Mutant::kReuseDrainingBlock},
    {"kNoExchangeRoom", Mutant::kNoExchangeRoom},
    {"kTrustOldCopy", Mutant::kTrustOldCopy},
};

}  // namespace

std::vector<std::string> AllMutants() {
  std::vector<std::string> names;
  for (const Row& row : kRows) names.push_back(row.name);
  return names;
}

bool SetMutant(const std::string& name) {
  for (const Row& row : kRows) {
    if (name != row.name) continue;
    allocator::active_mutant.store(row.mutant);
    return true;
  }
  return false;
}

}  // namespace spillway::simulation
