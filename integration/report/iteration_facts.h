// What a report says of one iteration of the job, from its launches with their times and names: the phases,
// the share of memory that kernels use, and what each kernel costs. RunReport asks whenever it gets a newer
// iteration, and at the end. Pure; what cannot be found is left out.

#ifndef SPILLWAY_INTEGRATION_REPORT_ITERATION_FACTS_H_
#define SPILLWAY_INTEGRATION_REPORT_ITERATION_FACTS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "integration/report/run_data.h"
#include "policy/model/workload.h"

namespace spillway::integration {

// The kernels of the iteration by name, each with the launches in one iteration and their time.
std::vector<ReportedKernel> CostsOfKernels(const policy::Workload& iteration);

// `first`: the kernel that follows the optimiser's step; none: the job marked no iterations, and the phases are
// left out. The phases are an estimate. The optimiser begins with the first use of state that nothing before
// it used. The backward pass begins, after the last weight was used for the first time, with the first kernel
// that is named as one of it, else where the most bytes are live: a guess, and both are marked as such.
std::vector<IterationFacts::Phase> FindPhases(const policy::Workload& iteration,
                                              std::optional<uint32_t> first);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_REPORT_ITERATION_FACTS_H_
