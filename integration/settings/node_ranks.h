// Which process of its node this one is, and of how many: from what launchers put into the environment. A
// pure function over a source of variables; ReadSettings calls it once. Nothing fails: a value that cannot be
// is left out, with a sentence that says so, and a job that says nothing counts as one of an unknown number.

#ifndef SPILLWAY_INTEGRATION_SETTINGS_NODE_RANKS_H_
#define SPILLWAY_INTEGRATION_SETTINGS_NODE_RANKS_H_

#include <functional>
#include <string>
#include <vector>

namespace spillway::integration {

struct NodeRanks {
  int rank = 0;          // of this process on its node, from 0
  int size = 0;          // ranks of the job on this node, at most kMostRanks; 0: not known
  std::string launcher;  // whose variables these are: "torchrun"; empty: nobody's
  std::string job;       // tells jobs of that launcher apart; empty where nothing does
};

// Far more than a node has: ranks are looked at one by one.
inline constexpr int kMostRanks = 4096;

// The value of a variable, null where it is not set.
using VariableSource = std::function<const char*(const char* name)>;

// The innermost launcher is believed: the table in docs/environment.md has the order. Appends a sentence to
// `warnings` for each value that is not accepted, and for a rank that is not below the number of ranks.
NodeRanks ReadNodeRanks(const VariableSource& variables, std::vector<std::string>* warnings);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_SETTINGS_NODE_RANKS_H_
