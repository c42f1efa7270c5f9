#include "integration/cli/job/top_view.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "integration/cli/common/utf8.h"
#include "integration/report/lost_causes.h"
#include "io/os/bytes_text.h"

namespace spillway::integration {
namespace {

using nlohmann::json;

constexpr char kHeading[] =
    "    PID RANK           ON THE GPU      HOST       DISK    OUT/s     IN/s  WROTE/s   READ/s  ITERATION  "
    "OF BOUND  LOST\n";

// Returns the number at a path of the answer; 0 if there is none.
double NumberAt(const json& answer, const std::string& path) {
  const json::json_pointer at(path);
  return answer.is_object() && answer.contains(at) && answer[at].is_number() ? answer[at].get<double>() : 0;
}

double Number(const json& answer, const std::string& path) { return NumberAt(answer, "/figures" + path); }

std::string BytesShown(double bytes) { return os::BytesText(static_cast<uint64_t>(std::max(0.0, bytes))); }

// Returns a text short enough for a column: "1.2G".
std::string Short(double bytes) {
  constexpr std::string_view kUnits = "BKMGT";
  size_t unit = 0;
  for (; bytes >= 999.5 && unit + 1 < kUnits.size(); ++unit) bytes /= 1000;
  if (bytes < 9.95 && unit > 0) return absl::StrFormat("%.1f%c", bytes, kUnits[unit]);
  return absl::StrFormat("%.0f%c", bytes, kUnits[unit]);
}

// Returns the growth between the two answers, per second.
std::string Rate(const TopJob& job, const std::string& path) {
  const double seconds = Number(job.now, "/seconds") - Number(job.before, "/seconds");
  if (job.before.is_null() || seconds <= 0) return "-";
  return Short((Number(job.now, path) - Number(job.before, path)) / seconds);
}

// Returns the cause for which the GPU lost most of the time between the two answers.
std::string Lost(const TopJob& job) {
  const json::json_pointer paused("/figures/pause/paused_now");
  if (job.now.is_object() && job.now.contains(paused) && job.now[paused] == true) return "paused";
  const double seconds = Number(job.now, "/seconds") - Number(job.before, "/seconds");
  if (job.before.is_null() || seconds <= 0) return "-";
  double most = 0;
  std::string words = "nothing";
  for (const LostCause& cause : kLostCauses) {
    const std::string path = absl::StrCat("/lost_seconds/", cause.key);
    const double part = (Number(job.now, path) - Number(job.before, path)) / seconds;
    if (part <= std::max(most, 0.005)) continue;
    most = part;
    words = absl::StrFormat("%.0f %% for %s", 100 * std::min(1.0, part), cause.what);
  }
  return words;
}

// Returns the metrics of the first device that has a known iteration.
std::pair<std::string, std::string> Iteration(const json& answer) {
  for (int device = 0;
       answer.is_object() && answer.contains(json::json_pointer(absl::StrCat("/figures/devices/", device)));
       ++device) {
    const std::string at = absl::StrCat("/devices/", device, "/iteration");
    const double seconds = Number(answer, at + "/seconds");
    if (seconds <= 0) continue;
    const double percent = Number(answer, at + "/percent_of_bound");
    return {absl::StrFormat("%.3f s", seconds), percent > 0 ? absl::StrFormat("%.0f %%", percent) : "-"};
  }
  return {"-", "-"};
}

// Cuts a text to one line of this many columns, whatever a job puts into its command.
std::string Cut(std::string text, size_t width) {
  if (text.size() > width) text = text.substr(0, width - std::min<size_t>(width, 3)) + "...";
  return WithoutControls(ValidUtf8(text));
}

std::string CommandOf(const json& answer) {
  if (!answer.is_object() || !answer.contains("command")) return "";
  std::vector<std::string> words;
  for (const json& word : answer["command"])
    if (word.is_string()) words.push_back(word.get<std::string>());
  return absl::StrJoin(words, " ");
}

std::string Row(const TopJob& job) {
  const auto [iteration, of_bound] = Iteration(job.now);
  const std::string on_gpu = absl::StrCat(BytesShown(Number(job.now, "/resident_bytes")), " of ",
                                          BytesShown(Number(job.now, "/budget_in_force_bytes")));
  return absl::StrFormat(
      "%7d %4d %20s %9s %10s %8s %8s %8s %8s %10s %9s  %s\n", job.pid,
      static_cast<int>(NumberAt(job.now, "/rank")), on_gpu, Short(Number(job.now, "/host_tier_bytes")),
      Short(Number(job.now, "/disk_tier_bytes")), Rate(job, "/spilled_bytes"), Rate(job, "/fetched_bytes"),
      Rate(job, "/disk_written_bytes"), Rate(job, "/disk_read_bytes"), iteration, of_bound, Lost(job));
}

// Returns the waits that take longest now, and the last lines of the log.
std::string Details(const json& answer, size_t width) {
  std::string text;
  const json::json_pointer waits("/figures/waits");
  if (answer.contains(waits)) {
    for (const auto& [kind, wait] : answer[waits].items()) {
      const double longest = NumberAt(wait, "/longest_now_seconds");
      if (longest >= 1) absl::StrAppendFormat(&text, "waits for %s: %.0f s\n", kind, longest);
    }
  }
  if (answer.contains("lines")) {
    for (const json& line : answer["lines"])
      if (line.is_string()) absl::StrAppend(&text, Cut(line.get<std::string>(), width), "\n");
  }
  return text;
}

}  // namespace

std::string TopText(const std::vector<TopJob>& jobs, size_t width) {
  std::string text = kHeading;
  for (const TopJob& job : jobs) {
    if (!job.problem.empty()) {
      absl::StrAppendFormat(&text, "%7d %s\n", job.pid, job.problem);
    } else {
      absl::StrAppend(&text, Row(job), Cut("        " + CommandOf(job.now), width), "\n");
    }
  }
  if (jobs.size() == 1 && jobs.front().problem.empty())
    absl::StrAppend(&text, "\n", Details(jobs.front().now, width));
  return text;
}

}  // namespace spillway::integration
