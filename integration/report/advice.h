// Advice: the cause that cost the job the most time, and the one setting that would help most against it.
// Pure: metrics in, one line out. The reporter writes the line at the end of the job.

#ifndef SPILLWAY_INTEGRATION_REPORT_ADVICE_H_
#define SPILLWAY_INTEGRATION_REPORT_ADVICE_H_

#include <cstdint>
#include <string>

#include "integration/report/metrics.h"

namespace spillway::integration {

// The facts about the settings that the advice needs.
struct AdviceFacts {
  bool least_recently_used = false;  // policy=lru
  bool strict = false;               // trust=strict
  bool audit = false;
  bool modeled_disk = false;
  uint64_t host_cap_bytes = 0;                 // of this process's host tier
  uint64_t largest_budget_bytes = UINT64_MAX;  // that SPILLWAY_GPU_MEMORY could ask for on the first device
};

// "lost time: the GPU had to wait 12.3 s of 60.0 s (20.5 %), most of it for ...; what would help most: ...",
// without the prefix. Empty where nothing was moved.
std::string AdviceLine(const Metrics& metrics, const AdviceFacts& facts);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_REPORT_ADVICE_H_
