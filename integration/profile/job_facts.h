// JobFacts: what a run has learnt of its kernels and of its machine, and the text that carries it to the next
// run (SPILLWAY_PROFILE). Whose facts they are stands in a key: those of another PyTorch, driver or device
// are not used. Neither sequences nor plans are among them. JobProfile (integration/engine) reads and writes
// the file. Pure; a text that is not whole is an error that says what is wrong with it.

#ifndef SPILLWAY_INTEGRATION_PROFILE_JOB_FACTS_H_
#define SPILLWAY_INTEGRATION_PROFILE_JOB_FACTS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "io/store/spill_store.h"
#include "policy/trace/write_facts.h"

namespace spillway::integration {

struct ProfileKey {
  std::string framework;  // PyTorch's release, "2.11.0+cu130"; "none": it is not loaded
  std::string driver;     // the CUDA version that it serves, "13.0"
  std::string device;     // its name
  friend bool operator==(const ProfileKey&, const ProfileKey&) = default;
};

// Bytes a second; 0: not known.
struct ProfileRates {
  double link_in = 0, link_out = 0, link_in_both = 0, link_out_both = 0;  // as policy::Machine has them
  double disk_in = 0, disk_out = 0;                                       // of all drives together
  uint64_t drives = 0;  // which spill directories these are of, by DrivesNumber
  friend bool operator==(const ProfileRates&, const ProfileRates&) = default;
};
// A number for these directories, equal for equal ones: their names do not stand in the file.
uint64_t DrivesNumber(const std::vector<std::string>& directories);

// The speed of one spill directory's drive.
struct DirectorySpeed {
  uint64_t directory = 0;  // by DrivesNumber
  io::DriveSpeed speed;
  friend bool operator==(const DirectorySpeed&, const DirectorySpeed&) = default;
};

struct JobFacts {
  ProfileKey key;
  ProfileRates rates;
  std::vector<DirectorySpeed> directories;  // the most recently used first
  std::vector<policy::FormFacts> writes;    // the most recently learnt first
};

// The largest file that is read as a profile, in bytes.
inline constexpr size_t kMaxProfileBytes = 64 << 10;
inline constexpr int kProfileVersion = 2;
// Directories beyond these are left out.
inline constexpr size_t kMaxProfileDirectories = 64;

// One fact a line, and a checksum at the end. At most kMaxProfileBytes: the last facts are left out.
std::string ProfileText(const JobFacts& facts);
// kDataLoss: the text is damaged. kUnimplemented: it is of another version.
absl::StatusOr<JobFacts> ParseProfile(std::string_view text);

// Returns the facts learned in this run, and behind them those that only `before` has. The former count where
// they contradict each other.
std::vector<policy::FormFacts> MergedWrites(std::vector<policy::FormFacts> learnt,
                                            const std::vector<policy::FormFacts>& before);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_PROFILE_JOB_FACTS_H_
