#include "integration/cli/report/run_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "integration/cli/common/trace_files.h"

namespace spillway::integration {
namespace {

namespace fs = std::filesystem;

constexpr char kAccepted[] = "; expected: files as SPILLWAY_REPORT writes them, and folders with such";
// The time by which a rank may begin after another one has ended and be of its job: neither clock is exact,
// and the first block comes when the model does.
constexpr double kSlackSeconds = 5;

// A file, and the argument of the command line that stands for it.
struct Named {
  size_t argument = 0;
  RankFile file;
};

auto PlaceOf(const ReportData& data) {
  const ReportJob& job = data.job;
  return std::tuple(job.host, job.rank.value_or(0), job.pid.value_or(0), job.device_index.value_or(0));
}

bool IsOneProcess(const ReportJob& a, const ReportJob& b) {
  return a.host == b.host && a.pid == b.pid && a.pid && a.started_unix == b.started_unix;
}

bool OverlapInTime(const ReportJob& a, const ReportJob& b) {
  if (!a.started_unix || !b.started_unix) return true;
  const double a_end = *a.started_unix + a.seconds.value_or(0) + kSlackSeconds;
  const double b_end = *b.started_unix + b.seconds.value_or(0) + kSlackSeconds;
  return *a.started_unix <= b_end && *b.started_unix <= a_end;
}

// Reads the head of the file to recognize it: a file that was cut off is to be refused, not passed over.
bool IsDataFile(const fs::path& path) {
  const std::string name = path.filename().string();
  if (!absl::EndsWith(name, ".json") && !absl::StrContains(name, ".json.gpu")) return false;
  std::string head(200, '\0');
  std::ifstream stream(path, std::ios::binary);
  stream.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<size_t>(stream.gcount()));
  return absl::StrContains(head, "\"spillway-report\"");
}

absl::StatusOr<RankFile> ReadRank(const std::string& path) {
  const auto text = ReadFile(path);
  if (!text.ok()) return text.status();
  auto data = ParseReport(*text);
  if (!data.ok()) return absl::InvalidArgumentError(absl::StrCat(path, ": ", data.status().message()));
  return RankFile{path, *std::move(data)};
}

absl::StatusOr<std::vector<Named>> ReadAll(const std::vector<std::string>& paths) {
  std::vector<Named> all;
  std::set<std::string> known;
  for (size_t argument = 0; argument < paths.size(); ++argument) {
    std::error_code error;
    std::vector<std::string> files = {paths[argument]};
    if (fs::is_directory(paths[argument], error)) {
      auto found = DataFilesIn(paths[argument]);
      if (!found.ok()) return found.status();
      files = *std::move(found);
    }
    const size_t first = all.size();
    for (const std::string& path : files) {
      if (!known.insert(fs::weakly_canonical(path, error).string()).second)
        return absl::InvalidArgumentError(absl::StrCat(path, ": named twice", kAccepted));
      auto rank = ReadRank(path);
      if (!rank.ok()) return rank.status();
      all.push_back({argument, *std::move(rank)});
    }
    // The earlier of two runs in one folder comes first.
    std::stable_sort(
        all.begin() + static_cast<ptrdiff_t>(first), all.end(), [](const Named& a, const Named& b) {
          return a.file.data.job.started_unix.value_or(0) < b.file.data.job.started_unix.value_or(0);
        });
  }
  return all;
}

bool Belongs(const ReportedRun& run, size_t run_argument, const Named& one, FilesAre files_are) {
  switch (files_are) {
    case FilesAre::kRanks: return true;
    case FilesAre::kRuns: return run_argument == one.argument;
    case FilesAre::kByThemselves: break;
  }
  return std::ranges::all_of(run.ranks,
                             [&one](const RankFile& rank) { return AreOfOneJob(rank.data, one.file.data); });
}

}  // namespace

bool RanTogether(const ReportData& a, const ReportData& b) {
  const ReportJob &one = a.job, &other = b.job;
  if (!OverlapInTime(one, other)) return false;
  if (IsOneProcess(one, other)) return one.device_index != other.device_index;
  return one.host != other.host || !one.rank || !other.rank || *one.rank != *other.rank;
}

bool AreOfOneJob(const ReportData& a, const ReportData& b) {
  return a.job.command == b.job.command && RanTogether(a, b);
}

absl::StatusOr<std::vector<std::string>> DataFilesIn(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code no_file;
    if (it->is_regular_file(no_file) && IsDataFile(it->path())) files.push_back(it->path().string());
  }
  if (error)
    return absl::NotFoundError(absl::StrCat(folder, ": cannot be read: ", error.message(), kAccepted));
  if (files.empty()) return absl::NotFoundError(absl::StrCat(folder, ": has no data of a run", kAccepted));
  std::ranges::sort(files);
  return files;
}

absl::StatusOr<std::vector<ReportedRun>> ReadRuns(const std::vector<std::string>& paths, FilesAre files_are) {
  auto all = ReadAll(paths);
  if (!all.ok()) return all.status();
  std::vector<ReportedRun> runs;
  std::vector<size_t> arguments;  // of each run: the first that names it
  for (Named& one : *all) {
    size_t r = 0;
    while (r < runs.size() && !Belongs(runs[r], arguments[r], one, files_are)) ++r;
    if (r == runs.size()) {
      runs.push_back({paths[one.argument], {}});
      arguments.push_back(one.argument);
    }
    runs[r].ranks.push_back(std::move(one.file));
  }
  // If a folder contains several runs, each gets the name of its first file.
  for (size_t r = 0; r < runs.size(); ++r) {
    if (std::ranges::count(arguments, arguments[r]) > 1) runs[r].name = runs[r].ranks.front().path;
  }
  for (ReportedRun& run : runs) {
    std::ranges::stable_sort(
        run.ranks, [](const RankFile& a, const RankFile& b) { return PlaceOf(a.data) < PlaceOf(b.data); });
  }
  return runs;
}

}  // namespace spillway::integration
