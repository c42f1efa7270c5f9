// OutputFile: a file for the user that is replaced as a whole, again and again, while the job runs. The
// reporter's thread writes those of SPILLWAY_METRICS, SPILLWAY_REPORT and SPILLWAY_PROMETHEUS. A file that
// cannot be written is reported once, and tried again the next time; the job never notices.

#ifndef SPILLWAY_INTEGRATION_REPORT_OUTPUT_FILE_H_
#define SPILLWAY_INTEGRATION_REPORT_OUTPUT_FILE_H_

#include <string>

#include "integration/report/atomic_file.h"

namespace spillway::integration {

// The host's name by gethostname; empty if that fails.
std::string HostName();

class OutputFile {
 public:
  // `setting`: the variable that asks for the file, for the line. `path`: if empty, nothing is written.
  OutputFile(std::string setting, std::string path, Readers readers);
  void Replace(const std::string& text);
  bool wanted() const { return !path_.empty(); }
  const std::string& path() const { return path_; }

  // Returns the path with "%p" (the process), "%r" (its rank on the node) and "%h" (the host's name)
  // replaced. If there is neither %p nor %r, ranks after the first have ".rankN" before the file's ending, as
  // in "run.rank1.json", so no rank replaces another's file.
  static std::string Expand(const std::string& pattern, int local_rank);
  // Returns the path with "%h" alone replaced.
  static std::string WithHost(const std::string& pattern);
  // Returns the path of one device's file. The first of the devices, in order, has `path` itself.
  static std::string OfDevice(const std::string& path, int device, bool first);

 private:
  const std::string setting_;
  const std::string path_;
  const Readers readers_;
  bool failed_ = false;  // failed, and was reported
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_REPORT_OUTPUT_FILE_H_
