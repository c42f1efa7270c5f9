// Workers: tasks that are independent of each other, on as many threads as there are processors, and a line
// on the terminal that shows their progress. The result does not depend on the number of threads. The
// commands that simulate use it. Its threads live as long as one call.

#ifndef SPILLWAY_INTEGRATION_CLI_COMMON_WORKERS_H_
#define SPILLWAY_INTEGRATION_CLI_COMMON_WORKERS_H_

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "integration/cli/common/progress_bar.h"
#include "io/os/clock.h"

namespace spillway::integration {

class Workers {
 public:
  using Task = std::function<void(size_t)>;
  using FallibleTask = std::function<absl::Status(size_t)>;

  // `threads`: the number of tasks at once; 0: one for each processor that this process may use. If `to` is a
  // terminal, it shows the progress once kWaitNanos have passed since now; null: nowhere.
  explicit Workers(unsigned threads, std::FILE* to = nullptr, const os::Clock* clock = os::Clock::System());

  // Calls task(0) to task(count - 1), each once, lower ones first, and returns when all have returned. `what`
  // names the work: "simulating". If the system has no thread left, the existing ones do the work. A signal
  // that would end the process ends it at once, and takes the line off the terminal before.
  void ForEach(const std::string& what, size_t count, const Task& task);

  // Like ForEach, but after an error no task with a higher number is begun. The error is that of the lowest
  // number, as on one thread.
  absl::Status TryForEach(const std::string& what, size_t count, const FallibleTask& task);

  unsigned threads() const { return threads_; }

  static constexpr int64_t kWaitNanos = 2 * os::kSecond;  // before anything is shown

 private:
  const unsigned threads_;
  std::FILE* const to_;  // null: no terminal
  const os::Clock* const clock_;
  const int64_t begin_;  // when this object was created
};

// Adds the option --threads; `threads` must live until the command line has been parsed.
void AddThreads(CLI::App* app, unsigned* threads);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_COMMON_WORKERS_H_
