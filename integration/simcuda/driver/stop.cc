#include "integration/simcuda/driver/stop.h"

#include <signal.h>

#include <cstdlib>

#include "integration/simcuda/driver/log.h"
#include "integration/simcuda/driver/stats.h"

namespace simcuda {

void StopLoudly() {
  FlushLogFromSignal();
  WriteStatsFile();
  signal(SIGABRT, SIG_DFL);
  std::abort();
}

}  // namespace simcuda
