#include "integration/report/advice.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "io/os/bytes_text.h"

namespace spillway::integration {
namespace {

using allocator::ResidencyStats;

// Below this part of the time no setting is worth a change.
constexpr double kLittle = 0.02;
// The disk counts as the cause of a wait for bytes if it has this part of the traffic or more.
constexpr double kMuchFromDisk = 0.25;

bool MostlyDisk(uint64_t disk, uint64_t all) {
  return all > 0 && static_cast<double>(disk) >= kMuchFromDisk * static_cast<double>(all);
}

// Settings that cost time whatever else is true, the costliest first; empty: none is set.
std::string CostlySetting(const ResidencyStats& total, const AdviceFacts& facts) {
  if (facts.audit) return "SPILLWAY_AUDIT=off";
  if (facts.modeled_disk) return "SPILLWAY_IO_MODEL=none";
  if (facts.least_recently_used) return "SPILLWAY_POLICY=plan";
  if (facts.strict && total.pinned_bytes > total.budget_in_force_bytes / 4) return "SPILLWAY_TRUST=normal";
  return "";
}

struct Cause {
  const char* words;
  uint64_t nanos;
  bool disk;  // more host memory would take the disk's part
};

Cause MainCause(const ResidencyStats& total) {
  const bool out = MostlyDisk(total.disk_spilled_bytes, total.spilled_bytes);
  const bool in = MostlyDisk(total.disk_fetched_bytes, total.fetched_bytes);
  const Cause read = {in ? "for bytes to come back from the disk" : "for bytes to come back from host memory",
                      total.lost_arrival_nanos, in};
  const Cause chunks = {out ? "for GPU memory that was still on its way to the disk"
                            : "for GPU memory that was still on its way to host memory",
                        total.lost_chunks_nanos, out};
  const Cause run_ahead = {"for the bound on launches under way", total.lost_run_ahead_nanos, false};
  return std::max({read, chunks, run_ahead},
                  [](const Cause& a, const Cause& b) { return a.nanos < b.nanos; });
}

}  // namespace

std::string AdviceLine(const Metrics& metrics, const AdviceFacts& facts) {
  const ResidencyStats total = Total(metrics.devices);
  if ((total.spilled_bytes == 0 && total.fetched_bytes == 0) || metrics.seconds <= 0) return "";
  const double lost = LostSeconds(total);
  const double all = metrics.seconds * static_cast<double>(metrics.devices.size());
  std::string text = absl::StrFormat("lost time: the GPU had to wait %.1f s of %.1f s (%.1f %%)", lost, all,
                                     100 * std::min(1.0, lost / all));
  if (lost < kLittle * all) return text + "; no setting would help much";
  if (!metrics.evictions_ended.empty())
    return text + "; no setting would help: nothing left the GPU after " + metrics.evictions_ended;

  const Cause cause = MainCause(total);
  std::string setting = CostlySetting(total, facts);
  if (setting.empty()) {
    const ResidencyStats& first = metrics.devices.front().stats;
    if (!cause.disk && first.own_limit_bytes > 0) {
      return text +
             absl::StrFormat("; what would help most: more by set_per_process_memory_fraction (now %s)",
                             os::BytesText(first.own_limit_bytes));
    }
    if (!cause.disk && first.share_bytes > 0 && first.share_bytes < first.budget_bytes)
      return text + "; no setting would help: other jobs have the rest of the GPU";
    if (!cause.disk && first.driver_lacks_bytes > 0) {
      return text + absl::StrFormat("; no setting would help: the GPU has no more than %s for a budget of %s",
                                    os::BytesText(first.budget_in_force_bytes),
                                    os::BytesText(first.budget_bytes));
    }
    if (!cause.disk && first.budget_in_force_bytes >= facts.largest_budget_bytes) {
      return text +
             absl::StrFormat("; no setting would help: the budget of %s is all that the GPU has for it",
                             os::BytesText(first.budget_in_force_bytes));
    }
    const uint64_t now = cause.disk ? facts.host_cap_bytes : first.budget_in_force_bytes;
    setting =
        absl::StrFormat("a larger %s (now %s)", cause.disk ? "SPILLWAY_HOST_MEMORY" : "SPILLWAY_GPU_MEMORY",
                        os::BytesText(now));
  }
  const char* const part = 2 * SecondsOf(cause.nanos) > lost ? "most" : "the largest part";
  return text + absl::StrFormat(", %s of it %s (%.1f s); what would help most: %s", part, cause.words,
                                SecondsOf(cause.nanos), setting);
}

}  // namespace spillway::integration
