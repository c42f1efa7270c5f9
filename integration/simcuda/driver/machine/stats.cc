#include "integration/simcuda/driver/machine/stats.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "integration/simcuda/driver/core/fail_points.h"
#include "integration/simcuda/driver/core/settings.h"
#include "integration/simcuda/driver/machine/driver.h"
#include "integration/simcuda/driver/machine/hardware_time.h"

namespace simcuda {
namespace {

Stats g_stats;

simcuda_stats Snapshot() {
  simcuda_stats out = {};
  out.struct_bytes = sizeof(out);
  for (int i = 0; i < DeviceCount(); ++i) {
    out.physical_bytes[i] = FindDevice(i)->used();
    out.peak_physical_bytes[i] = FindDevice(i)->peak();
  }
  out.missed_accesses = g_stats.missed_accesses;
  out.misuses = g_stats.misuses;
  out.launches = g_stats.launches;
  out.copies = g_stats.copies;
  out.memsets = g_stats.memsets;
  for (int i = 0; i < SIMCUDA_DIRECTIONS; ++i) out.copied_bytes[i] = g_stats.copied_bytes[i];
  return out;
}

void PrintList(std::FILE* file, const char* key, const uint64_t* values) {
  std::fprintf(file, "  \"%s\": [", key);
  for (int i = 0; i < DeviceCount(); ++i) {
    std::fprintf(file, "%s%llu", i == 0 ? "" : ", ", static_cast<unsigned long long>(values[i]));
  }
  std::fprintf(file, "],\n");
}

// Writes the costs of calls by the profile in force; times are stretched.
void WriteHardware(std::FILE* file) {
  simcuda_hardware_stats costs = {};
  costs.struct_bytes = sizeof(costs);
  simcuda_get_hardware_stats(&costs);
  std::fprintf(file, "  \"hardware\": {\n    \"profile\": \"%s\",\n    \"time_scale\": %g,\n",
               ActiveProfile()->name.c_str(), costs.time_scale);
  const auto print = [file](const char* key, uint64_t value) {
    std::fprintf(file, "    \"%s\": %llu,\n", key, static_cast<unsigned long long>(value));
  };
  print("memory_lock_ns", costs.memory_lock_ns);
  print("longest_memory_call_ns", costs.longest_memory_call_ns);
  print("enqueues", costs.enqueues);
  print("enqueue_wait_ns", costs.enqueue_wait_ns);
  print("longest_enqueue_wait_ns", costs.longest_enqueue_wait_ns);
  print("overruns", costs.overruns);
  print("overrun_ns", costs.overrun_ns);
  std::fprintf(file, "    \"calls\": {");
  for (int i = 0; i < SIMCUDA_CALLS; ++i) {
    std::fprintf(file, "%s\n      \"%s\": {\"count\": %llu, \"ns\": %llu}", i == 0 ? "" : ",",
                 simcuda_call_name(i), static_cast<unsigned long long>(costs.calls[i]),
                 static_cast<unsigned long long>(costs.call_ns[i]));
  }
  std::fprintf(file, "\n    }\n  }\n");
}

// Writes the number of calls of each function with a rule (SIMCUDA_FAIL), and of those that the rule made
// fail.
void PrintRules(std::FILE* file) {
  std::fprintf(file, "  \"failures\": {");
  const char* before = "";
  for (const RuleCount& rule : CountRules()) {
    std::fprintf(file, "%s\n    \"%s\": {\"calls\": %lld, \"failures\": %lld}", before, rule.symbol,
                 static_cast<long long>(rule.calls), static_cast<long long>(rule.failures));
    before = ",";
  }
  std::fprintf(file, "}%s\n", ActiveProfile() != nullptr ? "," : "");
}

}  // namespace

Stats& GetStats() { return g_stats; }

void WriteStatsFile() {
  const std::string& path = GetSettings().stats_file;
  if (path.empty()) return;
  std::FILE* file = std::fopen(path.c_str(), "we");
  if (file == nullptr) {
    std::fprintf(stderr, "simcuda: cannot write SIMCUDA_STATS=%s: %s\n", path.c_str(), std::strerror(errno));
    return;
  }
  const simcuda_stats stats = Snapshot();
  std::fprintf(file, "{\n");
  PrintList(file, "physical_bytes", stats.physical_bytes);
  PrintList(file, "peak_physical_bytes", stats.peak_physical_bytes);
  const auto print = [file](const char* key, uint64_t value, const char* end) {
    std::fprintf(file, "  \"%s\": %llu%s\n", key, static_cast<unsigned long long>(value), end);
  };
  print("missed_accesses", stats.missed_accesses, ",");
  print("misuses", stats.misuses, ",");
  print("launches", stats.launches, ",");
  print("copies", stats.copies, ",");
  print("memsets", stats.memsets, ",");
  print("htod_bytes", stats.copied_bytes[SIMCUDA_HTOD], ",");
  print("dtoh_bytes", stats.copied_bytes[SIMCUDA_DTOH], ",");
  print("dtod_bytes", stats.copied_bytes[SIMCUDA_DTOD], ",");
  print("htoh_bytes", stats.copied_bytes[SIMCUDA_HTOH], ",");
  PrintRules(file);
  if (ActiveProfile() != nullptr) WriteHardware(file);
  std::fprintf(file, "}\n");
  std::fclose(file);
}

}  // namespace simcuda

SIMCUDA_API int simcuda_get_stats(simcuda_stats* stats) {
  if (stats == nullptr || stats->struct_bytes < sizeof(size_t)) return CUDA_ERROR_INVALID_VALUE;
  const simcuda_stats snapshot = simcuda::Snapshot();
  const size_t caller_bytes = stats->struct_bytes;
  std::memcpy(stats, &snapshot, std::min(caller_bytes, sizeof(snapshot)));
  stats->struct_bytes = caller_bytes;
  return CUDA_SUCCESS;
}

SIMCUDA_API void simcuda_reset_stats(void) {
  using simcuda::g_stats;
  for (int i = 0; i < simcuda::DeviceCount(); ++i) simcuda::FindDevice(i)->ResetPeak();
  for (auto* counter :
       {&g_stats.missed_accesses, &g_stats.misuses, &g_stats.launches, &g_stats.copies, &g_stats.memsets,
        &g_stats.copied_bytes[SIMCUDA_HTOD], &g_stats.copied_bytes[SIMCUDA_DTOH],
        &g_stats.copied_bytes[SIMCUDA_DTOD], &g_stats.copied_bytes[SIMCUDA_HTOH]}) {
    *counter = 0;
  }
}

SIMCUDA_API uint64_t simcuda_missed_accesses(void) { return simcuda::g_stats.missed_accesses; }
