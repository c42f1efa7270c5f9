// The rank of this process on its node, and the number of ranks there, from the variables that launchers put
// into the environment. A pure function over a source of variables; ReadSettings calls it once. No call
// fails: a value that cannot be is left out, with a sentence about it, and a job without any such variable
// counts as one of an unknown number.

#ifndef SPILLWAY_INTEGRATION_SETTINGS_NODE_RANKS_H_
#define SPILLWAY_INTEGRATION_SETTINGS_NODE_RANKS_H_

#include <functional>
#include <string>
#include <vector>

namespace spillway::integration {

struct NodeRanks {
  int rank = 0;          // of this process on its node, from 0
  int size = 0;          // ranks of the job on this node, at most kMaxRanks; 0: not known
  std::string launcher;  // the launcher whose variables these are: "torchrun"; empty: none
  std::string job;       // tells jobs of that launcher apart; empty if nothing does
};

// Far more than a node has; ranks are visited one by one.
inline constexpr int kMaxRanks = 4096;

// Returns the value of a variable, null if it is not set.
using VariableSource = std::function<const char*(const char* name)>;

// Reads the ranks that the innermost launcher reports; the table in docs/environment.md has the order.
// Appends a sentence to `warnings` for each value that is not accepted, and for a rank that is not below the
// number of ranks.
NodeRanks ReadNodeRanks(const VariableSource& variables, std::vector<std::string>* warnings);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_SETTINGS_NODE_RANKS_H_
