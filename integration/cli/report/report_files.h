// Names of a run's data files and pages: of --report FILE.html, and of the files that its processes, ranks
// and devices wrote. For report_run. One thread. Reads folders; one that cannot be read counts as missing.

#ifndef SPILLWAY_INTEGRATION_CLI_REPORT_REPORT_FILES_H_
#define SPILLWAY_INTEGRATION_CLI_REPORT_REPORT_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace spillway::integration {

// Returns whether the value of --report asks for a page: it ends in .html. Otherwise it names only the data
// file.
bool AsksForPage(const std::string& report);

// Returns the data file of a page: "x-%r.json" for "x-%r.html". The processes replace %p and %r.
std::string DataPathOf(const std::string& page);

// Returns the pattern for one rank of the node: its number for %r; if there is neither %p nor %r,
// "x.rank1.json" for "x.json".
std::string DataPathOfRank(const std::string& pattern, int rank);

// Whether a pattern with neither %p nor %r stands for the file of that name alone, or for those of further
// ranks ("x.rank1.json"), too.
enum class Whose : uint8_t { kEveryRanks, kOneRanks };

// Returns the data files that `pattern` stands for and that were written since `since_unix_ns`: with numbers
// for %p and %r, and those of further devices (".gpu1"). Sorted.
std::vector<std::string> WrittenDataFiles(const std::string& pattern, Whose whose, long long since_unix_ns);

// Returns "x.gpu1.html" for "x.json.gpu1".
std::string PageOfDataFile(const std::string& data);

// Returns the page of everything that `pattern` stands for: "x.ranks.html" for "x.json", "x-ranks.html" for
// "x-%r.json".
std::string PageOfRanks(const std::string& pattern);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_REPORT_REPORT_FILES_H_
