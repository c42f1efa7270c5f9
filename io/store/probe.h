// Probe: finds out what a directory can do. It makes a real aligned write, read and compare through the
// engine that will be used, and checks which of these bytes lie in the page cache, because an accepted
// O_DIRECT does not show it. SpillStore opens its directories here, on the thread that creates it; `spillway
// doctor` asks for a report (rates: disk_rate.h). A directory that cannot be used gives an error that names
// it.

#ifndef SPILLWAY_IO_STORE_PROBE_H_
#define SPILLWAY_IO_STORE_PROBE_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "io/engine/engine.h"
#include "io/store/spill_file.h"
#include "io/store/spill_store_options.h"

namespace spillway::io {

// Writes, reads back and compares 64 KiB at the start of file 0, which it overwrites. The engine must be
// idle. DeadlineExceeded when a transfer takes longer than `timeout`: the engine has been stopped then, and
// the file must not be used again, since the kernel may still write there.
absl::Status ProbeEngine(IoEngine* engine, std::chrono::nanoseconds timeout = std::chrono::seconds(10));

// The kernel's name of a file system's block device ("nvme0n1p2"), or an empty string.
std::string DriveName(dev_t device);

struct OpenedDirectory {
  std::unique_ptr<SpillFile> file;   // empty
  std::unique_ptr<IoEngine> engine;  // over file->fd(); Wake serves another thread than that of OpenDirectory
  std::string cached_because;        // reason for transfers through the page cache; empty: they are direct
};

// Creates a spill file in `path` and the best engine that works there: io_uring with O_DIRECT, or else
// threads with O_DIRECT, or else buffered threads that flush each write. Buffered threads give a warning, and
// one more where checksums are off, because the caller must then compute them. O_DIRECT counts if the probe
// left nothing in the page cache, and if no other process or machine has a cache before its disk. For an
// EngineKind other than kAuto only that engine is tried, and its error is returned. DeadlineExceeded when the
// disk does not answer in time. The call is entered as a wait for the drive.
absl::StatusOr<OpenedDirectory> OpenDirectory(const std::string& path, const SpillStoreOptions& options);

// For people: the properties of spilling to this directory.
struct DirectoryReport {
  std::string file_system;     // "ext4"
  std::string known;           // known facts about that kind, for people; empty: nothing special
  bool direct_io = false;      // a direct transfer that has ended is on the disk
  std::string cached_because;  // reason why it is not
  bool io_uring = false;       // io_uring transfers work there
  std::string io_uring_error;  // reason why they do not
};

// Tries what OpenDirectory tries, and leaves nothing behind.
absl::StatusOr<DirectoryReport> ProbeDirectory(const std::string& path);

}  // namespace spillway::io

#endif  // SPILLWAY_IO_STORE_PROBE_H_
