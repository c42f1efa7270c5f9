// LpModel: the linear program whose value no plan beats. Variables are the bytes away in each idle interval
// and the bytes that flow in each slot of an LpTimeline. Bytes of all intervals in one pool are
// interchangeable, which makes it a relaxation of any schedule. docs/planner.md describes it. FindLpBound
// creates and solves it. Pure data; thread-safe; no call fails.

#ifndef SPILLWAY_POLICY_OFFLINE_LP_MODEL_H_
#define SPILLWAY_POLICY_OFFLINE_LP_MODEL_H_

#include <cstdint>
#include <vector>

#include "policy/model/machine.h"
#include "policy/offline/lp_solve.h"
#include "policy/offline/lp_timeline.h"

namespace spillway::policy {

enum class LpTiers {
  kHostOnly,   // as if everything fitted in host memory
  kSsdOnly,    // no host memory
  kMayChange,  // bytes may go to either and be moved between them at any time
  // Bytes of one content go to one tier only and are written once: the bound of plans that demote and promote
  // nothing and write nothing twice.
  kKeep,
};

struct LpModel {
  LpProblem problem;
  double byte_unit = 1;  // bytes per 1 of a variable
  double nano_unit = 1;
  std::vector<int> gaps;    // column of each slot's gap; -1: it has none
  std::vector<int> waited;  // column of the sum of the gaps up to the end of each slot
  // Column of the bytes away in each interval, by tier; -1: none. kMayChange: all in evicted_host.
  std::vector<int> evicted_host, evicted_ssd;
  // For kHostOnly: the host's bytes at the end of each slot are the sum of these two columns.
  std::vector<int> away, written;
};

LpModel MakeLpModel(const LpTimeline& timeline, const Machine& machine, LpTiers tiers);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_OFFLINE_LP_MODEL_H_
