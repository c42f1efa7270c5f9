// This machine and the limits of this process: read from /proc and /sys below `root` (tests bring their own)
// and asked of the kernel. No call fails: a fact that cannot be read counts as not known. One thread, and
// nothing is changed. `spillway doctor` calls it.

#ifndef SPILLWAY_INTEGRATION_CLI_DOCTOR_MACHINE_FACTS_H_
#define SPILLWAY_INTEGRATION_CLI_DOCTOR_MACHINE_FACTS_H_

#include <sched.h>

#include <cstddef>
#include <functional>
#include <string>

#include "integration/cli/doctor/facts.h"

namespace spillway::integration {

SystemFacts InspectSystem(const std::string& root = "");

LimitFacts InspectLimits(const std::string& root = "");

// Returns the number of CPUs in the set that `ask` fills; 0: not known. `ask` is like sched_getaffinity.
using AskForCpus = std::function<int(size_t bytes, cpu_set_t* set)>;
int CountCpus(const AskForCpus& ask);

// Returns why a machine of this architecture with this release of the kernel is not served; empty: it is.
std::string WhyUnserved(const std::string& architecture, const std::string& release);

// Returns why a ring could not be created: `error` is io_uring_setup's, `disabled` the value of
// kernel.io_uring_disabled (empty: there is no such file).
std::string WhyNoRing(int error, const std::string& disabled);

// Returns whether NVIDIA's kernel module is there.
bool HasKernelModule(const std::string& root = "");

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_DOCTOR_MACHINE_FACTS_H_
