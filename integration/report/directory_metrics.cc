#include "integration/report/directory_metrics.h"

#include "absl/strings/str_format.h"
#include "integration/report/wear.h"

namespace spillway::integration {

double WrittenTbPerDay(const io::DirectoryStats& directory, double seconds) {
  constexpr double kDay = 86400;
  return seconds <= 0 ? 0 : static_cast<double>(directory.bytes_written) / 1e12 / seconds * kDay;
}

nlohmann::ordered_json DirectoryJson(const io::DirectoryStats& directory, double seconds) {
  nlohmann::ordered_json json;
#define DIRECTORY_METRIC(key, type, value, metric, help) json[#key] = value;
#include "integration/report/job_metrics.def"
  return json;
}

std::string DirectoryText(const io::DirectoryStats& directory, double seconds) {
  std::string text;
  const auto add = [&text](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  const auto count = [&add](const char* what, uint64_t times) {
    if (times > 0) add(absl::StrFormat("%s: %d", what, times));
  };
  const double rate = WrittenTbPerDay(directory, seconds);
  if (rate >= 0.01)
    add(absl::StrFormat("%.2f TB written a day (a drive of %.0f TBW lasts %.0f days)", rate, kRatedTerabytes,
                        kRatedTerabytes / rate));
  else if (rate > 0)
    add("less than 0.01 TB written a day");
  count("failed transfers", directory.errors);
  count("retries", directory.retries);
  count("wrong checksums", directory.checksum_mismatches);
  count("slots out of use", directory.slots_quarantined);
  count("slots moved away", directory.slots_moved);
  count("closures", directory.times_closed);
  if (directory.closed)
    add("closed now: it " + directory.why_closed);
  else if (directory.times_closed > 0)
    text += " (the last: " + directory.last_closure + ")";
  return text.empty() ? "" : "; " + directory.path + ": " + text;
}

}  // namespace spillway::integration
