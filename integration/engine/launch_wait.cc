#include "integration/engine/launch_wait.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "allocator/driver/cuda_driver.h"
#include "integration/engine/request_signals.h"

namespace spillway::integration {

LaunchWait::LaunchWait() : main_thread_(::getpid() == ::gettid()) {}

absl::Status LaunchWait::Once(int fd, int longest_milliseconds, absl::FunctionRef<std::string()> name,
                              const char* what) const {
  pollfd readable = {fd, POLLIN, 0};
  const uint64_t ours = RequestSignals();
  const int result = ::poll(&readable, 1, longest_milliseconds);
  if (result < 0 && errno == EINTR && main_thread_ && RequestSignals() == ours)
    return allocator::IllegalState(
        absl::StrCat(name(), " waited for ", what,
                     ", and a signal came: it is refused so that the job can handle the signal"));
  return absl::OkStatus();
}

}  // namespace spillway::integration
