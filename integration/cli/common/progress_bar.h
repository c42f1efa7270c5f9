// A progress bar for people who wait: one line that is overwritten on a terminal, a plain line at the start
// and at the end of each step elsewhere. One thread; output that cannot be written is lost.

#ifndef SPILLWAY_INTEGRATION_CLI_COMMON_PROGRESS_BAR_H_
#define SPILLWAY_INTEGRATION_CLI_COMMON_PROGRESS_BAR_H_

#include <cstdio>
#include <string>

namespace spillway::integration {

class ProgressBar {
 public:
  // `terminal`: whether `to` is one.
  ProgressBar(std::FILE* to, bool terminal) : to_(to), terminal_(terminal) {}
  ~ProgressBar() { Clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // `what` names the step: "/var/tmp: writing". A new name begins a new step. `part` goes from 0 to 1, where
  // the step ends. `detail`: "1.50 GiB, 3.2 s"; may be empty.
  void Show(const std::string& what, double part, const std::string& detail);

  // Takes the bar off the terminal's line.
  void Clear();

  // Returns to the start of a terminal's line and clears it to the right.
  static constexpr char kClear[] = "\r\x1b[K";

 private:
  std::FILE* const to_;
  const bool terminal_;
  std::string doing_;
  bool drawn_ = false;
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_COMMON_PROGRESS_BAR_H_
