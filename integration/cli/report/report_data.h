// ReportData: a run as its process wrote it into the file of SPILLWAY_REPORT (docs/report-data.md), read and
// checked. A figure that the file does not have is absent here, never 0. For `spillway report`. Pure; an
// error names the place in the file, what is wrong there and what is accepted.

#ifndef SPILLWAY_INTEGRATION_CLI_REPORT_REPORT_DATA_H_
#define SPILLWAY_INTEGRATION_CLI_REPORT_REPORT_DATA_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace spillway::integration {

// A value for each row of a table; columns of one table are equally long, or empty if the file lacks one.
using Column = std::vector<double>;
using Known = std::optional<double>;

struct ReportJob {
  std::vector<std::string> command;
  std::string host, spillway, framework, driver, device;               // empty: not known
  Known pid, rank, device_index, device_bytes, started_unix, seconds;  // rank: on its node
  Known local_size;                                                    // ranks of the job on that node
  std::optional<bool> ended;  // false: written while it ran, or it was killed
};

struct ReportSetting {
  std::string name, value, from;  // from: the variable that gave it
};

struct ReportDisk {
  std::string directory;
  Known bytes;           // of the capacity
  Column written, read;  // of the transfers
  std::string drive;     // the drive that it lies on; empty: not known
  Known ranks;           // of the job's ranks on this node that write to that drive
};

struct ReportCapacity {
  Known gpu_bytes, gpu_blocks_bytes, gpu_reserve_bytes, gpu_taken_bytes, host_bytes;
  std::optional<std::vector<ReportDisk>> disks;  // empty list: the job had none
};

// Samples at equal distances from time 0; an empty column is not known.
struct ReportMemory {
  double every_s = 0;
  Column gpu, host, disk, live;
};

struct ReportTransfers {
  double every_s = 0;
  Column to_host, to_gpu;
  std::vector<ReportDisk> disks;
};

struct ReportIterations {
  Column start_s, seconds;
};

struct ReportPhase {
  std::string name;
  double from = 0, to = 0;  // parts of an iteration
  bool guessed = false;     // no kernel's name shows the backward pass, which begins where most is live
};

struct ReportMoves {
  Column start_s, seconds, bytes;
  std::vector<size_t> kind;  // of `kinds`
  std::vector<std::string> kinds;
};

struct ReportStalls {
  Column start_s, seconds, lost_s;
  std::vector<size_t> cause;                  // of `causes`
  std::vector<std::optional<size_t>> kernel;  // of `kernels`
  std::vector<std::string> causes, kernels;
};

struct ReportBlock {
  std::string block, last_kernel;
  Known bytes, moved_bytes, stalled_s;
};

struct ReportKernel {
  std::string kernel;
  Known launches, seconds, stalled_s;
};

struct ReportReachingKernel {
  std::string kernel;
  Known launches, bytes, most_bytes;
};

// The rates that plain copies over the link were measured to reach, alone and while both directions run:
// bytes a second, all above 0.
struct ReportLink {
  double in = 0, out = 0, in_both = 0, out_both = 0;
};

// One spill directory and the state of its drive, over all devices (`directories` in docs/metrics.md).
struct ReportDirectory {
  std::string path, engine, why_closed, last_closure;
  std::optional<bool> direct, closed;
  Known written_bytes, read_bytes, written_tb_per_day;
  Known errors, retries, mismatches, quarantined_slots, closures;
};

// The moves and losses of one recurring iteration, by the process's own count; none if nothing repeated
// itself.
struct ReportPerIteration {
  Known host_spilled_bytes, disk_spilled_bytes, host_fetched_bytes, disk_fetched_bytes;
  std::vector<std::pair<std::string, double>> lost_seconds;  // by cause
};

// The metrics (docs/metrics.md) of the report's device if the file has them so, otherwise of all the
// process's devices. Duration and bytes of drives are always the process's.
struct ReportMetrics {
  Known seconds, budget_bytes, peak_bytes, peak_live_bytes;
  Known spilled_bytes, host_spilled_bytes, disk_spilled_bytes;
  Known fetched_bytes, host_fetched_bytes, disk_fetched_bytes, in_time_bytes;
  Known disk_written_bytes, disk_read_bytes, stall_seconds;
  std::vector<std::pair<std::string, double>> lost_seconds;  // by cause
  Known iteration_s, ideal_s, bound_s, plan_s;
  ReportPerIteration per_iteration;
  Known host_in, host_out, disk_in, disk_out;  // of the job's transfers, bytes a second
  std::optional<ReportLink> link;              // none: it was not measured
  std::vector<ReportDirectory> directories;    // empty: the job had none, or the file does not have them
  std::string evictions_ended;
  size_t devices = 1;
};

struct ReportPause {
  double start_s = 0, leaving_s = 0;
  Known seconds;           // until it was resumed; none: it was not resumed when the file was written
  std::string by, region;  // "job", "outside" or "idle"; the region's tag, empty: everything
  Known clean_bytes, host_bytes, disk_bytes, dropped_bytes;

  // Returns the pause's length. A pause that was not resumed lasts until `end_s`.
  double SecondsUntil(double end_s) const { return seconds.value_or(std::max(0.0, end_s - start_s)); }
};

struct ReportPower {
  Known gpu_joules, cpu_joules;
  std::string source;  // how the joules were found
};

struct ReportData {
  ReportJob job;
  std::vector<ReportSetting> settings;
  ReportCapacity capacity;
  ReportMetrics metrics;
  std::optional<ReportMemory> memory;
  std::optional<ReportTransfers> transfers;
  std::optional<ReportIterations> iterations;
  std::vector<ReportPhase> phases;
  std::optional<ReportMoves> moves;
  std::optional<ReportStalls> stalls;
  std::vector<ReportBlock> largest_blocks;
  std::vector<ReportKernel> costliest_kernels;
  std::vector<ReportReachingKernel> reaching_kernels;
  Known active_share;
  std::string advice;
  std::string iteration;  // the bytes of a trace file; empty: not known
  std::optional<ReportPower> power;
  std::vector<ReportPause> pauses;
  Known dropped_moves, dropped_stalls;  // for which the file had no place
};

// Reads the JSON of a data file. Returns InvalidArgument for text that is damaged, cut, of another form or of
// a version that this program does not read. Bytes that are no UTF-8 are replaced, not refused.
absl::StatusOr<nlohmann::json> ReadReportJson(const std::string& text);

// Like ReadReportJson; InvalidArgument for wrong fields, too.
absl::StatusOr<ReportData> ParseReport(const std::string& text);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_REPORT_REPORT_DATA_H_
