// Probe: finds out what a directory can do by a real aligned write, read and compare through the engine that
// is to be used, and a look at what of it lies in the page cache. That O_DIRECT was accepted does not say it.
// SpillStore opens its directories here, on the thread that creates it; `spillway doctor` asks for a report
// (rates: disk_rate.h). A directory that cannot be used gives an error that names it.

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
// idle. DeadlineExceeded when a transfer takes longer than `timeout`: the engine has been stopped then, and the
// file must not be used again, since the kernel may still write there.
absl::Status ProbeEngine(IoEngine* engine, std::chrono::nanoseconds timeout = std::chrono::seconds(10));

// The kernel's name of a file system's block device ("nvme0n1p2"), or an empty string.
std::string DriveName(dev_t device);

struct OpenedDirectory {
  std::unique_ptr<SpillFile> file;   // empty
  std::unique_ptr<IoEngine> engine;  // over file->fd(); Wake serves another thread than that of OpenDirectory
  std::string cached_because;        // why transfers go through the page cache; empty: they do not
};

// Makes a spill file in `path` and the best engine that works there: io_uring with O_DIRECT, else threads
// with O_DIRECT, else buffered threads that flush each write (with a warning, and one more where checksums are off:
// the caller must make them then). O_DIRECT counts where the probe left nothing in the page cache, and where no other
// process or machine has a cache before its disk. For an EngineKind other than kAuto only that
// engine is tried; its error is returned. DeadlineExceeded when the disk does not answer in time.
// Entered as a wait for the drive.
absl::StatusOr<OpenedDirectory> OpenDirectory(const std::string& path, const SpillStoreOptions& options);

// For people: what spilling to this directory would be like.
struct DirectoryReport {
  std::string file_system;     // "ext4"
  std::string known;           // what is known of that kind, for people; empty: nothing special
  bool direct_io = false;      // a direct transfer that has ended is on the disk
  std::string cached_because;  // why not
  bool io_uring = false;       // io_uring transfers work there
  std::string io_uring_error;  // why not
};

// Tries what OpenDirectory tries, and leaves nothing behind.
absl::StatusOr<DirectoryReport> ProbeDirectory(const std::string& path);

}  // namespace spillway::io

#endif  // SPILLWAY_IO_STORE_PROBE_H_
