// The part of Runtime that ends evictions for the whole process when a call is met that cannot be followed.

#include "absl/strings/str_cat.h"
#include "integration/engine/runtime.h"
#include "io/os/log.h"

namespace spillway::integration {

void Runtime::SwitchEvictionOff(const char* reason) {
  Runtime* runtime = Get();
  if (runtime == nullptr || runtime->eviction_off_.exchange(true)) return;
  for (std::atomic<allocator::Residency*>& device : runtime->residencies_) {
    if (allocator::Residency* const residency = device.load()) residency->StopEvicting();
  }
  os::Announce(absl::StrCat("nothing more will be moved off the GPU: ", reason, " cannot be followed"));
}

}  // namespace spillway::integration
