#include "integration/cli/common/progress_bar.h"

#include <algorithm>

namespace spillway::integration {
namespace {

constexpr int kWidth = 24;

}  // namespace

void ProgressBar::Show(const std::string& what, double part, const std::string& detail) {
  const bool begins = what != doing_;
  doing_ = what;
  if (terminal_) {
    const int full = static_cast<int>(std::clamp(part, 0.0, 1.0) * kWidth);
    const std::string bar =
        std::string(static_cast<size_t>(full), '#') + std::string(static_cast<size_t>(kWidth - full), '.');
    std::fprintf(to_, "%s[%s] %s %s", kClear, bar.c_str(), what.c_str(), detail.c_str());
    drawn_ = true;
  } else if (begins && part < 1) {
    std::fprintf(to_, "spillway: %s ...\n", what.c_str());
  }
  if (!terminal_ && part >= 1) {
    std::fprintf(to_, "spillway: %s: %s\n", what.c_str(), detail.empty() ? "done" : detail.c_str());
    doing_.clear();
  }
  std::fflush(to_);
}

void ProgressBar::Clear() {
  if (drawn_) std::fputs(kClear, to_);
  drawn_ = false;
  std::fflush(to_);
}

}  // namespace spillway::integration
