// Names of a run's data files and pages: of --report FILE.html, and of what its processes, ranks and devices
// wrote. For report_run. One thread. Looks at folders; what cannot be looked at is not there.

#ifndef SPILLWAY_INTEGRATION_CLI_REPORT_REPORT_FILES_H_
#define SPILLWAY_INTEGRATION_CLI_REPORT_REPORT_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace spillway::integration {

// Whether the value of --report asks for a page: it ends in .html. Else it names the data file alone.
bool AsksForPage(const std::string& report);

// The data file of a page: "x-%r.json" for "x-%r.html". The processes replace %p and %r.
std::string DataPathOf(const std::string& page);

// The pattern for one rank of the node: its number for %r; with neither %p nor %r "x.rank1.json" for "x.json".
std::string DataPathOfRank(const std::string& pattern, int rank);

// Of a pattern with neither %p nor %r: the file of that name alone, or those of further ranks ("x.rank1.json"), too.
enum class Whose : uint8_t { kEveryRanks, kOneRanks };

// Data files that `pattern` stands for and that were written since `since_unix_ns`: with numbers for %p and %r, and those
// of further devices (".gpu1"). Sorted.
std::vector<std::string> WrittenDataFiles(const std::string& pattern, Whose whose, long long since_unix_ns);

// "x.gpu1.html" for "x.json.gpu1".
std::string PageOfDataFile(const std::string& data);

// The page of all that `pattern` stands for: "x.ranks.html" for "x.json", "x-ranks.html" for "x-%r.json".
std::string PageOfRanks(const std::string& pattern);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_REPORT_REPORT_FILES_H_
