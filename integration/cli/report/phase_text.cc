#include "integration/cli/report/phase_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace spillway::integration {

std::string PhaseLabel(const ReportPhase& phase) {
  constexpr double kTooShort = 0.07;  // of the iteration
  if (phase.to - phase.from < kTooShort) return "";
  return absl::StrCat(phase.name, phase.guessed ? "?" : "");
}

std::string PhaseText(const std::vector<ReportPhase>& phases) {
  if (phases.empty()) return "";
  if (std::ranges::none_of(phases, &ReportPhase::guessed)) return " Phases are those of a typical iteration.";
  return " Phases are those of a typical iteration; where the backward pass begins is a guess: no kernel is "
         "named as one of it, and the most bytes are live there.";
}

}  // namespace spillway::integration
