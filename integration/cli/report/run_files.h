// The data files of runs as a command line names them: files, and folders that stand for the data files in
// them. They are grouped into runs: the ranks of one job are one run. For `spillway report`, on the program's
// main thread. Reads files; an error names the file or folder and what is accepted.

#ifndef SPILLWAY_INTEGRATION_CLI_REPORT_RUN_FILES_H_
#define SPILLWAY_INTEGRATION_CLI_REPORT_RUN_FILES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "integration/cli/report/report_data.h"

namespace spillway::integration {

// The file of one process about one of its devices.
struct RankFile {
  std::string path;
  ReportData data;
};

// The files of one job, in the order of hosts, ranks and devices.
struct ReportedRun {
  std::string name;  // as the command line has it: of its first file, or of its folder
  std::vector<RankFile> ranks;
};

// The way in which files are grouped.
enum class FilesAre {
  kByThemselves,  // AreOfOneJob decides
  kRanks,         // all of one job
  kRuns,          // each argument names a run
};

// Returns whether two files can be of ranks of one job, whatever their commands: two processes, or two
// devices of one process, ran at the same time, and not as the same rank of a node. A time that is not known
// is taken to fit.
bool RanTogether(const ReportData& a, const ReportData& b);

// Returns whether two files are of one job: they ran together, by the same command.
bool AreOfOneJob(const ReportData& a, const ReportData& b);

// Returns the data files of the folder; files of other kinds are passed over. NotFound if there are none.
absl::StatusOr<std::vector<std::string>> DataFilesIn(const std::string& folder);

// Returns the runs in the order of `paths`. InvalidArgument for a file that is no complete data of a run, or
// that is named twice.
absl::StatusOr<std::vector<ReportedRun>> ReadRuns(const std::vector<std::string>& paths, FilesAre files_are);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_REPORT_RUN_FILES_H_
