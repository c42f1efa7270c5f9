// SpillStoreOptions: what a spill store is made with: its directories, and how it uses them. The engine fills
// it in from the settings. Constant data; any thread may read it. CheckOptions refuses values that cannot be.

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

// Size of a slot, and the most that one Write or Read moves. The simulation's are smaller.
#ifndef SPILLWAY_SLOT_BYTES
#define SPILLWAY_SLOT_BYTES (2u << 20)
#endif
inline constexpr uint32_t kSlotBytes = SPILLWAY_SLOT_BYTES;

// kOff: reads are not verified.
enum class ChecksumMode : uint8_t { kOn, kOff };
// kAuto: io_uring where a probe shows that it works, else threads.
enum class EngineKind : uint8_t { kAuto, kThreads, kUring };

struct SpillDirectory {
  std::string path;
  uint64_t cap_bytes = 0;  // the most our file may grow to; 0: no cap but the reserve
  // Not empty: the cap is that of all processes together that spill there under this name (NodeShare).
  std::string shared_as{};
  int sharers = 0;  // how many there will be; 0: not known
};

struct SpillStoreOptions {
  std::vector<SpillDirectory> directories;  // at least one
  uint64_t disk_reserve_bytes = 0;          // left free in each file system; 0: the default
  uint64_t growth_bytes = 1ull << 30;  // the most that a file grows by at a time; ahead of need half of it
  ChecksumMode checksum = ChecksumMode::kOn;
  EngineKind engine = EngineKind::kAuto;  // kAuto: io_uring where a probe shows that it works, else threads
  uint32_t request_bytes = 512u << 10;    // size of one transfer; a multiple of 4 KiB, at most kSlotBytes
  int requests_in_flight = 16;            // per directory
  int engine_threads = 8;                 // per directory, thread engine only
  int workers = 0;                        // that hash, encrypt and call back; 0: WorkersFor its drives
  // So many failed transfers within `error_window` close a directory: it gets no new slots until a probe has
  // shown that it works. The first is made after `first_probe`; later ones after twice the time, up to
  // `longest_probe_pause`.
  int errors_until_closed = 8;
  std::chrono::nanoseconds error_window = std::chrono::seconds(10);
  std::chrono::nanoseconds first_probe = std::chrono::seconds(1);
  std::chrono::nanoseconds longest_probe_pause = std::chrono::seconds(30);
  // Of a directory that is closed by errors for this long, what can be read moves to other directories.
  std::chrono::nanoseconds moves_after = std::chrono::seconds(60);
  // See TransferQueueOptions.
  std::chrono::nanoseconds request_timeout = std::chrono::seconds(30);
  std::chrono::nanoseconds retry_time = std::chrono::seconds(2);
  // How long each transfer of the probe may take; then the directory counts as one that does not answer.
  std::chrono::nanoseconds probe_timeout = std::chrono::seconds(10);
  // For this time after Create a full disk is not taken as full: space of a killed process comes free at the
  // next commit.
  std::chrono::nanoseconds late_frees = std::chrono::seconds(10);
  bool allow_any_file_system = false;  // also tmpfs, ramfs and NFS
  const os::Clock* clock = os::Clock::System();
  std::shared_ptr<const SlotCipher> cipher;  // null: what is written is not encrypted
  WriteBudget* write_budget = nullptr;       // bounds what is written; outlives the store. Null: nothing does
  os::WaitList* waits = nullptr;             // the process's; null: one of the store's own
  DiskModels models;                         // without limits: the disks as they are
  std::vector<DriveFault> faults;            // for trials
  // For tests: replaces the engine of the directory with that index by one that wraps it.
  std::function<std::unique_ptr<IoEngine>(std::unique_ptr<IoEngine>, size_t directory)> wrap_engine;
  // For tests: wraps each engine before it is probed.
  std::function<std::unique_ptr<IoEngine>(std::unique_ptr<IoEngine>)> wrap_probed_engine;
};

// InvalidArgument naming the first option that cannot be, its value and what is accepted.
absl::Status CheckOptions(const SpillStoreOptions& options);

}  // namespace spillway::io

#endif  // SPILLWAY_IO_STORE_SPILL_STORE_OPTIONS_H_
