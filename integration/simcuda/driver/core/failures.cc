#include "integration/simcuda/driver/core/failures.h"

#include <atomic>

#include "integration/simcuda/driver/core/driver_api.h"
#include "integration/simcuda/driver/core/fail_points.h"
#include "integration/simcuda/driver/core/settings.h"

namespace simcuda {
namespace {

std::atomic<int64_t> g_creates{0};
std::atomic<int64_t> g_set_accesses{0};
std::atomic<int64_t> g_copies{0};

bool Count(std::atomic<int64_t>* calls, const Settings::Value& nth, const Settings::Value& every) {
  if (nth == 0 && every == 0) return false;
  const int64_t call = ++*calls;
  return (nth != 0 && call == nth) || (every != 0 && call % every == 0);
}

}  // namespace

bool ShouldFailCreate() {
  return Count(&g_creates, GetSettings().fail_create, GetSettings().fail_create_every);
}
bool ShouldFailSetAccess() {
  return Count(&g_set_accesses, GetSettings().fail_set_access, GetSettings().fail_set_access_every);
}
bool ShouldFailCopy() { return Count(&g_copies, GetSettings().fail_copy, GetSettings().fail_copy_every); }

}  // namespace simcuda

SIMCUDA_API void simcuda_reset_failures(void) {
  simcuda::g_creates = 0;
  simcuda::g_set_accesses = 0;
  simcuda::g_copies = 0;
  simcuda::ForgetCalls();
}
