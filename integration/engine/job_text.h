// Lines about the job as a whole: the parts that serve it, for its first block, and the blocks that fill the
// memory, for a refusal. Pure: facts in, text out. JobReports gathers the facts.

#ifndef SPILLWAY_INTEGRATION_ENGINE_JOB_TEXT_H_
#define SPILLWAY_INTEGRATION_ENGINE_JOB_TEXT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "allocator/residency/residency.h"
#include "integration/engine/sizing.h"
#include "policy/model/units.h"

namespace spillway::integration {

struct ServedJob {
  std::string framework;  // "PyTorch 2.11"; empty: a direct user of the C ABI
  int device = 0;
  int devices = 1;  // visible ones
  MemoryParts memory;
  bool shared = false;            // whether other jobs share the device
  uint64_t host_bytes = 0;        // cap of the host tier; 0: none
  std::vector<std::string> disk;  // spill directories; empty: no disk tier
  bool evicts = true;
  bool observes = false;
  int rank = 0;
  int ranks = 1;
};

// Returns "Spillway 0.1.0 serves PyTorch 2.11 on GPU 0 (1 visible): budget 2.00 GiB of 8.00 GiB (...), ...",
// without the prefix.
std::string ServedLine(const ServedJob& job);

// Returns the kernel or call of a launch by its index, as text; empty if it is not known any more.
using NameOfIndex = std::function<std::string(policy::LaunchIndex index)>;

// Returns "The largest live blocks: 64.00 MiB, last used by gemm; ..."; empty if there is no block.
std::string LargestBlocksText(const std::vector<allocator::LargeBlock>& blocks, const NameOfIndex& name);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_JOB_TEXT_H_
