#include "integration/simcuda/driver/machine/stop.h"

#include <signal.h>

#include <cstdlib>

#include "integration/simcuda/driver/core/log.h"
#include "integration/simcuda/driver/machine/stats.h"

namespace simcuda {

void StopLoudly() {
  FlushLogFromSignal();
  WriteStatsFile();
  signal(SIGABRT, SIG_DFL);
  std::abort();
}

}  // namespace simcuda
