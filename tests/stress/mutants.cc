#include "tests/stress/mutants.h"

#include "io/test_points.h"

namespace spillway::stress {
namespace {

struct Row {
  const char* name;
  io::StoreMutant mutant;
};

#define ROW(name) \
  { #name, io::StoreMutant::name }
constexpr Row kRows[] = {
    ROW(kReadUnverified),   ROW(kChecksumNotAwaited),  ROW(kShortIsWhole),    ROW(kContinuesAtStart),
    ROW(kStaleResult),      ROW(kEndsInFlight),        ROW(kReadFailsAtOnce), ROW(kReadGivenUp),
    ROW(kMovesWhatChanged), ROW(kWritesTakeAllPlaces), ROW(kStaysSilent),     ROW(kStaysClosed),
    ROW(kProbeSlotKept),
};
#undef ROW

}  // namespace

std::vector<std::string> AllMutants() {
  std::vector<std::string> names;
  for (const Row& row : kRows) names.emplace_back(row.name);
  return names;
}

bool SetMutant(const std::string& name) {
  for (const Row& row : kRows) {
    if (name != row.name) continue;
    io::active_store_mutant.store(row.mutant);
    return true;
  }
  return false;
}

}  // namespace spillway::stress
