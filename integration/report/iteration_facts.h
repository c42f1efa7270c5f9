// The facts that a report gives of one iteration of the job, computed from its launches with their times and
// names: the phases, the share of memory that kernels use, and the cost of each kernel. RunReport asks
// whenever it gets a newer iteration, and at the end. Pure; a fact that cannot be found is left out.

#ifndef SPILLWAY_INTEGRATION_REPORT_ITERATION_FACTS_H_
#define SPILLWAY_INTEGRATION_REPORT_ITERATION_FACTS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "integration/report/run_data.h"
#include "policy/model/workload.h"

namespace spillway::integration {

// Returns the kernels of the iteration by name, each with its launches in one iteration and their time.
std::vector<ReportedKernel> CostsOfKernels(const policy::Workload& iteration);

// Returns the phases of the iteration, which are an estimate. `first`: the kernel that follows the end of
// optimizer.step(); none: the job marked no iterations, and there are no phases. The optimizer begins with
// the first kernel that changes state which no kernel before it used. The backward pass begins after every
// weight has been used once, with the first kernel whose name says backward. If no name does, it begins where
// the most bytes are live. This is a guess, and the phases on both sides are marked as such.
std::vector<IterationFacts::Phase> FindPhases(const policy::Workload& iteration,
                                              std::optional<uint32_t> first);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_REPORT_ITERATION_FACTS_H_
