// The causes for which a GPU has nothing to do, each under one name: in code, in JSON, in Prometheus' label,
// and as text. For the metrics, the advice, `spillway report` and `spillway top`. Data alone; any thread.

#ifndef SPILLWAY_INTEGRATION_REPORT_LOST_CAUSES_H_
#define SPILLWAY_INTEGRATION_REPORT_LOST_CAUSES_H_

#include <cstdint>

#include "allocator/residency/residency.h"

namespace spillway::integration {

struct LostCause {
  const char* key;    // of lost_seconds, and of the stalls of a run's data
  const char* what;   // that was waited for, in a word or two
  const char* words;  // the same in a sentence: "the GPU had to wait ..."
  uint64_t allocator::ResidencyStats::*nanos;
};

inline constexpr LostCause kLostCauses[] = {
    {"chunks", "GPU memory", "for GPU memory to become free", &allocator::ResidencyStats::lost_chunks_nanos},
    {"arrival", "bytes", "for bytes to come back", &allocator::ResidencyStats::lost_arrival_nanos},
    {"run_ahead", "run-ahead", "for the bound on launches under way",
     &allocator::ResidencyStats::lost_run_ahead_nanos},
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_REPORT_LOST_CAUSES_H_
