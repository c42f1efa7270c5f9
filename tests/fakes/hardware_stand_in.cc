#include "tests/fakes/hardware_stand_in.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace spillway::fakes {
namespace {

[[noreturn]] void Die(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
  std::exit(1);
}

void CountWord(const simcuda_launch* launch, void** parameters) {
  auto* const word = *static_cast<uint64_t**>(parameters[0]);
  if (*word != *static_cast<uint64_t*>(parameters[1])) Die("a block came back with other bytes");
  ++*word;
}

void DoNothing(const simcuda_launch* launch, void** parameters) {}

}  // namespace

HardwareStandIn::HardwareStandIn() {
  library_ = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (library_ == nullptr) Die("the stand-in driver is not loaded");
  set_ = reinterpret_cast<decltype(set_)>(Find("simcuda_set"));
  get_stats_ = reinterpret_cast<decltype(get_stats_)>(Find("simcuda_get_hardware_stats"));
  reset_stats_ = reinterpret_cast<decltype(reset_stats_)>(Find("simcuda_reset_hardware_stats"));
  thread_cpu_ = reinterpret_cast<decltype(thread_cpu_)>(Find("simcuda_thread_cpu_ns"));
  launch_kernel = reinterpret_cast<decltype(launch_kernel)>(Find("cuLaunchKernel"));
  mem_alloc = reinterpret_cast<decltype(mem_alloc)>(Find("cuMemAlloc_v2"));
  mem_free = reinterpret_cast<decltype(mem_free)>(Find("cuMemFree_v2"));
  count_ = Register("bench_count", &CountWord, 2);
  empty_ = Register("bench_empty", &DoNothing, 1);
  Set("POISON", "off");
  Set("COPY_BYTES", "sample");
}

void* HardwareStandIn::Find(const char* name) const {
  void* const found = dlsym(library_, name);
  if (found == nullptr) Die(std::string(name) + " is not in the driver: it is not the stand-in");
  return found;
}

void HardwareStandIn::Set(const char* name, const std::string& value) const {
  if (set_(name, value.c_str()) != 0) Die(std::string(name) + "=" + value + " is refused");
}

CUfunction HardwareStandIn::Register(const char* name, simcuda_kernel_function run, size_t parameters) const {
  const simcuda_parameter layout[] = {{0, 8}, {8, 8}};
  const simcuda_kernel kernel = {name, run, nullptr, layout, parameters};
  CUfunction function = nullptr;
  const auto add = reinterpret_cast<decltype(&::simcuda_register_kernel)>(Find("simcuda_register_kernel"));
  if (add(&kernel, &function) != 0) Die("a kernel is refused");
  return function;
}

void HardwareStandIn::Become(const Machine& machine) const {
  Set("HARDWARE", "");
  if (machine.name.empty()) return;
  Set("HARDWARE_END", machine.end);
  Set("HARDWARE_FORM", machine.form);
  Set("TIME_SCALE", std::to_string(machine.time_scale));
  Set("HARDWARE", machine.name);
}

simcuda_hardware_stats HardwareStandIn::Stats() const {
  simcuda_hardware_stats stats = {};
  stats.struct_bytes = sizeof(stats);
  if (get_stats_(&stats) != 0) Die("no hardware statistics");
  return stats;
}

double HardwareStandIn::OwnCpuSeconds() const {
  double seconds = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    if (name.rfind("spill", 0) != 0) continue;  // spillway-device, spill-io and their like
    uint64_t on_cpu_ns = 0;
    std::ifstream(task.path() / "schedstat") >> on_cpu_ns;
    const uint64_t in_driver = thread_cpu_(std::stoi(task.path().filename().string()));
    seconds += static_cast<double>(on_cpu_ns - std::min(on_cpu_ns, in_driver)) / 1e9;
  }
  return seconds;
}

}  // namespace spillway::fakes
