#include "integration/engine/job_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "io/os/bytes_text.h"

namespace spillway::integration {
namespace {

// A template's name may fill a page.
constexpr size_t kLongestName = 96;

std::string UseText(const allocator::LargeBlock& block, const NameOfIndex& name) {
  if (!block.last_launch) return "not used yet";
  std::string last = name ? name(*block.last_launch) : "";
  if (last.empty()) return "last kernel not known";
  if (last.size() > kLongestName) last = last.substr(0, kLongestName) + "...";
  return absl::StrCat("last used by ", last);
}

}  // namespace

std::string ServedLine(const ServedJob& job) {
  std::string text = absl::StrCat("Spillway ", SPILLWAY_VERSION_TEXT, " serves ",
                                  job.framework.empty() ? "this job" : job.framework, " on GPU ", job.device,
                                  " (", job.devices, " visible): budget ", Text(job.memory),
                                  job.shared ? ", shared with other jobs" : "");
  if (job.observes) {
    absl::StrAppend(&text, ", nothing is moved (SPILLWAY=observe)");
  } else if (!job.evicts) {
    absl::StrAppend(&text, ", nothing is moved");
  } else {
    absl::StrAppend(&text, ", host memory ",
                    job.host_bytes == 0 ? "none" : absl::StrCat("up to ", os::BytesText(job.host_bytes)),
                    ", disk ", job.disk.empty() ? "none" : absl::StrJoin(job.disk, ", "));
  }
  if (job.ranks > 1) absl::StrAppend(&text, "; rank ", job.rank, " of ", job.ranks);
  return text;
}

std::string LargestBlocksText(const std::vector<allocator::LargeBlock>& blocks, const NameOfIndex& name) {
  std::string text;
  for (const allocator::LargeBlock& block : blocks) {
    absl::StrAppend(&text, text.empty() ? "The largest live blocks: " : "; ",
                    os::BytesText(block.requested_bytes), block.resident ? ", " : " off the GPU, ",
                    UseText(block, name));
  }
  return text;
}

}  // namespace spillway::integration
