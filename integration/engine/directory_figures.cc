#include "integration/engine/directory_figures.h"

#include "absl/strings/str_format.h"

namespace spillway::integration {

nlohmann::ordered_json DirectoryJson(const io::DirectoryStats& directory) {
  return {{"path", directory.path},
          {"engine", directory.engine},
          {"direct", directory.direct},
          {"file_bytes", directory.file_bytes},
          {"written_bytes", directory.bytes_written},
          {"read_bytes", directory.bytes_read},
          {"errors", directory.errors},
          {"retries", directory.retries},
          {"mismatches", directory.checksum_mismatches},
          {"quarantined_slots", directory.slots_quarantined},
          {"closed", directory.closed},
          {"why_closed", directory.why_closed},
          {"closures", directory.times_closed}};
}

std::string DirectoryText(const io::DirectoryStats& directory) {
  std::string text;
  const auto add = [&text](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (directory.errors > 0) add(absl::StrFormat("failed transfers: %d", directory.errors));
  if (directory.checksum_mismatches > 0)
    add(absl::StrFormat("wrong checksums: %d", directory.checksum_mismatches));
  if (directory.times_closed > 0) add(absl::StrFormat("closures: %d", directory.times_closed));
  if (directory.closed) add("closed now: it " + directory.why_closed);
  return text.empty() ? "" : "; " + directory.path + ": " + text;
}

}  // namespace spillway::integration
