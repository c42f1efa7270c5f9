// SpillStoreOptions: the inputs of a spill store: its directories, and how it uses them. The engine fills
// them in from the settings. The data are constant, so any thread may read them. CheckOptions refuses
// impossible values.

#ifndef SPILLWAY_IO_STORE_SPILL_STORE_OPTIONS_H_
#define SPILLWAY_IO_STORE_SPILL_STORE_OPTIONS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "io/engine/engine.h"
#include "io/engine/fault_engine.h"
#include "io/engine/model_engine.h"
#include "io/os/clock.h"
#include "io/os/wait.h"
#include "io/store/slot_cipher.h"
#include "io/store/write_budget.h"

namespace spillway::io {

// Size of a slot, which is also the most that one Write or Read moves. The simulation uses smaller slots.
#ifndef SPILLWAY_SLOT_BYTES
#define SPILLWAY_SLOT_BYTES (2u << 20)
#endif
inline constexpr uint32_t kSlotBytes = SPILLWAY_SLOT_BYTES;

// Reads are not verified with kOff.
enum class ChecksumMode : uint8_t { kOn, kOff };
// kAuto is io_uring if a probe shows that it works, or else threads.
enum class EngineKind : uint8_t { kAuto, kThreads, kUring };

struct SpillDirectory {
  std::string path;
  uint64_t cap_bytes = 0;  // upper limit of our file; 0: no cap but the reserve
  // If not empty, the cap is that of all processes together that spill there under this name (NodeShare).
  std::string shared_as{};
  int sharers = 0;  // number of such processes; 0: not known
};

struct SpillStoreOptions {
  std::vector<SpillDirectory> directories;  // at least one
  uint64_t disk_reserve_bytes = 0;          // left free in each file system; 0: the default
  uint64_t growth_bytes = 1ull << 30;       // largest growth of a file at a time; half of it ahead of need
  ChecksumMode checksum = ChecksumMode::kOn;
  EngineKind engine = EngineKind::kAuto;  // kAuto: io_uring if a probe shows that it works, else threads
  uint32_t request_bytes = 512u << 10;    // size of one transfer; a multiple of 4 KiB, at most kSlotBytes
  int requests_in_flight = 16;            // per directory
  int engine_threads = 8;                 // per directory, thread engine only
  int workers = 0;                        // to hash, encrypt and call back; 0: WorkersFor its drives
  // This number of failed transfers within `error_window` closes a directory: it gets no new slots until a
  // probe has shown that it works. The first probe is made after `first_probe`; later ones after twice the
  // time, up to `longest_probe_pause`.
  int errors_until_closed = 8;
  std::chrono::nanoseconds error_window = std::chrono::seconds(10);
  std::chrono::nanoseconds first_probe = std::chrono::seconds(1);
  std::chrono::nanoseconds longest_probe_pause = std::chrono::seconds(30);
  // When a directory has been closed by errors for this long, its readable slots move to other directories.
  std::chrono::nanoseconds moves_after = std::chrono::seconds(60);
  // Per-request timeout and retry window; see TransferQueueOptions.
  std::chrono::nanoseconds request_timeout = std::chrono::seconds(30);
  std::chrono::nanoseconds retry_time = std::chrono::seconds(2);
  // Time limit of each transfer of the probe. After it the directory counts as one that does not answer.
  std::chrono::nanoseconds probe_timeout = std::chrono::seconds(10);
  // A full disk is not taken as full for this time after Create, because the space of a killed process comes
  // free at the next commit.
  std::chrono::nanoseconds late_frees = std::chrono::seconds(10);
  // Time limit of Shutdown. Threads that a disk still holds then are left behind, with their descriptors. An
  // exit handler has 2 s for everything. A test that looks at what is left allows a busy disk more.
  std::chrono::nanoseconds shutdown_timeout = std::chrono::seconds(1);
  bool allow_any_file_system = false;  // also tmpfs, ramfs and NFS
  const os::Clock* clock = os::Clock::System();
  std::shared_ptr<const SlotCipher> cipher;  // null: the bytes are not encrypted
  WriteBudget* write_budget = nullptr;       // bounds the writes; outlives the store. Null: no bound
  os::WaitList* waits = nullptr;             // the process's; null: one of the store's own
  DiskModels models;                         // without limits: the disks as they are
  std::vector<DriveFault> faults;            // for trials
  // For tests: replaces the engine of the directory with that index by one that wraps it.
  std::function<std::unique_ptr<IoEngine>(std::unique_ptr<IoEngine>, size_t directory)> wrap_engine;
  // For tests: wraps each engine before it is probed.
  std::function<std::unique_ptr<IoEngine>(std::unique_ptr<IoEngine>)> wrap_probed_engine;
};

// Fails with InvalidArgument that names the first impossible option, its value and what is accepted.
absl::Status CheckOptions(const SpillStoreOptions& options);

}  // namespace spillway::io

#endif  // SPILLWAY_IO_STORE_SPILL_STORE_OPTIONS_H_
