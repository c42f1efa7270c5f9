// RunData: the contents of SPILLWAY_REPORT's file, and its JSON (docs/report-data.md has each field).
// RunReport fills it on the reporter's thread. Pure: data in, text out; no call fails.

#ifndef SPILLWAY_INTEGRATION_REPORT_RUN_DATA_H_
#define SPILLWAY_INTEGRATION_REPORT_RUN_DATA_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "allocator/memory/block_id.h"
#include "allocator/residency/state/pause.h"
#include "integration/report/iteration_log.h"
#include "integration/report/motion_log.h"
#include "integration/report/time_series.h"

namespace spillway::integration {

// The drive of a spill directory, for the wear of drives.
struct SpillDrive {
  std::string name;  // "nvme0n1"; empty: not known
  int ranks = 0;     // of the job's ranks on this node that spill there, this one included; 0: not known
};

// The facts about the job before it has done anything. Empty, or 0: not known.
struct RunFacts {
  struct Setting {
    std::string name, value, from;  // "gpu_memory", "20GiB", "SPILLWAY_GPU_MEMORY"
  };
  std::vector<std::string> command;
  std::string host, spillway, framework, driver;
  int pid = 0, rank = 0, local_size = 0;
  double started_unix = 0;
  std::vector<Setting> settings;
  uint64_t host_bytes = 0;               // capacity of the host tier
  std::vector<std::string> directories;  // of the disk tier
  std::vector<SpillDrive> drives;        // one for each directory; may be shorter
  int64_t origin_nanos = 0;              // time 0 on the steady clock
};

struct ReportedDevice {
  int device = 0;
  std::string name;
  std::string pci_bus_id;  // for its energy
  uint64_t device_bytes = 0;
  // Parts of device_bytes: the budget for blocks and for other memory of the process, the reserve, and memory
  // that others had.
  uint64_t blocks_bytes = 0, process_bytes = 0, reserve_bytes = 0, taken_bytes = 0;
};

// A block among the largest of a moment.
struct ReportedBlock {
  allocator::BlockId block;
  uint64_t bytes = 0;
  MotionLog::BlockSums sums;
  std::string last_kernel;  // empty: not known
};

struct ReportedKernel {
  std::string name;
  std::optional<uint64_t> launches;  // in one iteration
  std::optional<double> seconds;     // of these
  double stalled_seconds = 0;        // in the whole run
};

// A kernel whose launches did not fit the GPU.
struct ReachingKernel {
  std::string name;
  uint64_t launches = 0;
  uint64_t bytes = 0;       // of all launches, in host memory
  uint64_t most_bytes = 0;  // of one
};

// The facts about one iteration of the job.
struct IterationFacts {
  struct Phase {
    std::string name;
    double from = 0, to = 0;  // shares of the iteration
    bool guessed = false;     // no kernel's name shows where forward ends and backward begins
  };
  std::string file;  // as SPILLWAY_TRACE writes it
  double active_share = 0;
  std::vector<Phase> phases;
};

// One pause of the job, on all its devices. Times are the steady clock's, in nanoseconds.
struct ReportedPause {
  int64_t began = 0;
  int64_t left = 0;     // when everything that could had left the GPU
  int64_t resumed = 0;  // when launches could name the blocks again; 0: not yet
  allocator::PausedBy by = allocator::PausedBy::kJob;
  std::string tag;  // of a region; empty: everything
  uint64_t clean_bytes = 0, host_bytes = 0, disk_bytes = 0, dropped_bytes = 0;  // by how they left
  int device = -1;                                                              // the idle device; -1: all
};

struct Power {
  std::optional<double> gpu_joules, cpu_joules;
  std::string source;
};

// All data of one device, at one moment. The pointers are not owned; none is null.
struct RunData {
  const RunFacts* facts = nullptr;
  const ReportedDevice* device = nullptr;
  double seconds = 0;
  bool ended = false;
  std::string metrics;                  // JSON: the metrics of the same moment
  std::string advice;                   // the job's last line on lost time, at the same moment; may be empty
  std::vector<uint64_t> disk_capacity;  // of each directory
  const TimeSeries* memory = nullptr;
  const TimeSeries* transfers = nullptr;
  std::vector<LoggedIteration> iterations;
  Motion motion;
  std::map<uint64_t, std::string> kernel_names;  // by the tags of stalls
  std::vector<ReportedBlock> largest_blocks;
  std::vector<ReportedKernel> costliest_kernels;
  std::vector<ReachingKernel> reaching_kernels;  // those with most bytes first
  std::optional<IterationFacts> iteration;
  std::optional<Power> power;
  std::vector<ReportedPause> pauses;  // the last pauses, ordered by the time when all had left
};

// The figures of RunData::memory and RunData::transfers, in their order. The figures of transfers end with
// the bytes written and read of each directory.
enum class MemoryFigure : size_t { kGpu, kResident, kHost, kDisk, kLive, kCount };
enum class TransferFigure : size_t { kToHost, kToGpu, kDirectories };

std::string RunDataJson(const RunData& data);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_REPORT_RUN_DATA_H_
