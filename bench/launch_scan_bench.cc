// What Spillway adds to a launch when everything is resident, by form of the parameters: the scan alone, and the whole
// gate from the entry of the hooked cuLaunchKernel to its return, over a driver that does nothing. Beside each, in the
// same run, a loop that only reads the same bytes, eight at a time. `hot`: 8 sets of arguments, 400 blocks;
// `warm`: 256 sets, 4,000 blocks. Times are of the processor, since the machine may be busy; the ratios are the result.
//
//   launch_scan_bench [--json FILE] [--benchmark_...]

#include <benchmark/benchmark.h>
#include <dlfcn.h>
#include <linux/limits.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/gate_library.h"
#include "bench/launch_forms.h"
#include "bench/null_driver.h"
#include "integration/hooks/hook_rows.h"
#include "integration/hooks/kernel_params.h"

namespace spillway::bench {
namespace {

using integration::ParamLayout;
using integration::Row;
using integration::RowTraits;
using LaunchFunction = RowTraits<Row::cuLaunchKernel>::Function;

constexpr uint64_t kBlockBytes = 2 << 20;
constexpr double kShortLaunchNanos = 5000;

struct Warmth {
  const char* name;
  size_t sets;
  size_t blocks;
};
constexpr Warmth kWarmths[] = {{"hot", 8, 400}, {"warm", 256, 4000}};

[[noreturn]] void Die(const std::string& text) {
  std::fprintf(stderr, "launch_scan_bench: %s\n", text.c_str());
  std::exit(1);
}

const spillway_gate_bench* OpenGate(bool predict) {
  char path[PATH_MAX] = {};
  if (readlink("/proc/self/exe", path, sizeof(path) - 1) < 0) Die("where am I?");
  std::string library(path);
  library = library.substr(0, library.rfind('/')) + "/../lib/bench/libspillway_bench_gate.so";
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) Die(dlerror());
  void* const open = dlsym(handle, SPILLWAY_GATE_BENCH_OPEN);
  if (open == nullptr) Die(dlerror());
  return reinterpret_cast<spillway_gate_bench_open_fn>(open)(predict ? 1 : 0);
}

// The kernel's handle, as the driver gives it out through the hooks.
CUfunction GiveOut(const spillway_gate_bench& gate, const NullKernel& kernel) {
  const auto find =
      reinterpret_cast<RowTraits<Row::cuModuleGetFunction>::Function>(gate.wrapper("cuModuleGetFunction"));
  if (find == nullptr) Die("cuModuleGetFunction is not wrapped");
  auto function = reinterpret_cast<CUfunction>(const_cast<NullKernel*>(&kernel));
  find(&function, reinterpret_cast<CUmodule>(0x20), "null_kernel");  // the driver that does nothing leaves it
  return function;
}

// All that is measured on: the gate, its blocks, and a map of the same blocks for the scan alone.
struct Stage {
  const spillway_gate_bench* gate = nullptr;
  LaunchFunction launch = nullptr;
  std::vector<uint64_t> blocks;
  std::unique_ptr<const allocator::CudaDriver> driver;
  std::unique_ptr<allocator::AddressMap> map;
};

Stage MakeStage(bool predict) {
  Stage stage;
  stage.gate = OpenGate(predict);
  stage.launch = reinterpret_cast<LaunchFunction>(stage.gate->wrapper("cuLaunchKernel"));
  if (stage.launch == nullptr) Die("cuLaunchKernel is not wrapped");
  stage.driver = *allocator::CudaDriver::Load(&NullDriverFunction);
  stage.map = *allocator::AddressMap::Reserve(stage.driver.get(), 1, uint64_t{256} << 30, kBlockBytes);
  static const NullKernel first_use{{8}};
  for (uint32_t i = 0; i < kWarmths[1].blocks; ++i) {
    uint64_t address = stage.gate->allocate(kBlockBytes);
    stage.blocks.push_back(address);
    stage.map->Assign(address, kBlockBytes, allocator::BlockId(0, i + 1));
    void* params[] = {&address};
    auto* const function = GiveOut(*stage.gate, first_use);
    if (stage.launch(function, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr) != CUDA_SUCCESS) {
      Die("a first use failed");
    }
  }
  return stage;
}

struct Case {
  const LaunchForm* form;
  const Warmth* warmth;
  ParamLayout layout;
  std::vector<ArgumentSet> sets;
};

void ReadOnly(benchmark::State& state, const Case* test) {
  size_t next = 0;
  for (auto _ : state) {
    const ArgumentSet& set = test->sets[next];
    next = next + 1 == test->sets.size() ? 0 : next + 1;
    uint64_t sum = 0;
    for (const ParamLayout::Entry& entry : test->layout.entries()) {
      const char* const bytes = static_cast<const char*>(set.params[entry.index]);
      for (size_t i = 0; i < entry.words; ++i) {
        uint64_t word;
        std::memcpy(&word, bytes + i * sizeof(word), sizeof(word));
        sum += word;
      }
    }
    benchmark::DoNotOptimize(sum);
  }
}

void ScanAlone(benchmark::State& state, const Case* test, const allocator::AddressMap* map) {
  allocator::AccessSet found;
  size_t next = 0;
  for (auto _ : state) {
    const ArgumentSet& set = test->sets[next];
    next = next + 1 == test->sets.size() ? 0 : next + 1;
    found.Clear();
    integration::ScanKernelParams(set.params.data(), test->layout, *map, &found);
    benchmark::DoNotOptimize(found.size());
  }
  if (found.size() != test->form->pointers) state.SkipWithError("the scan found other blocks");
}

void WholeGate(benchmark::State& state, const Case* test, const spillway_gate_bench* gate,
               LaunchFunction launch) {
  auto* const function = GiveOut(*gate, test->form->kernel);
  size_t next = 0;
  for (auto _ : state) {
    const ArgumentSet& set = test->sets[next];
    next = next + 1 == test->sets.size() ? 0 : next + 1;
    auto** const params = const_cast<void**>(set.params.data());
    const CUresult result = launch(function, 1, 1, 1, 128, 1, 1, 0, nullptr, params, nullptr);
    if (result != CUDA_SUCCESS) state.SkipWithError("a launch was refused");
  }
}

void AllocateAndFree(benchmark::State& state, const spillway_gate_bench* gate) {
  for (auto _ : state) gate->free_block(gate->allocate(kBlockBytes));
}

// Keeps each benchmark's repetitions, and writes nothing.
class ResultReporter : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.error_occurred) Die(run.benchmark_name() + ": " + run.error_message);
      if (run.run_type == Run::RT_Iteration)
        nanos_[run.run_name.function_name].push_back(run.GetAdjustedCPUTime());
    }
  }
  double Median(const std::string& name) {
    std::vector<double>& values = nanos_[name];
    if (values.empty()) return 0;  // filtered out
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  }

 private:
  std::map<std::string, std::vector<double>> nanos_;
};

std::string NameOf(const char* what, const Case& test) {
  return std::string(what) + "/" + test.form->name + "/" + test.warmth->name;
}

void Register(const Stage& stage, const std::vector<Case>& cases) {
  for (const Case& test : cases) {
    benchmark::RegisterBenchmark(NameOf("read", test).c_str(), ReadOnly, &test);
    benchmark::RegisterBenchmark(NameOf("scan", test).c_str(), ScanAlone, &test, stage.map.get());
    benchmark::RegisterBenchmark(NameOf("gate", test).c_str(), WholeGate, &test, stage.gate, stage.launch);
  }
  benchmark::RegisterBenchmark("allocate", AllocateAndFree, stage.gate);
}

nlohmann::json Report(const std::vector<Case>& cases, ResultReporter* results) {
  nlohmann::json rows = nlohmann::json::array();
  std::printf("%-40s %-5s %8s %8s %10s %8s %10s %12s\n", "parameters", "", "read ns", "scan ns", "scan/read",
              "gate ns", "gate/read", "gate of 5 us");
  for (const Case& test : cases) {
    const double read = results->Median(NameOf("read", test));
    const double scan = results->Median(NameOf("scan", test));
    const double gate = results->Median(NameOf("gate", test));
    std::printf("%-40s %-5s %8.1f %8.1f %10.2f %8.1f %10.2f %10.2f %%\n", test.form->name.c_str(),
                test.warmth->name, read, scan, scan / read, gate, gate / read,
                100 * gate / kShortLaunchNanos);
    rows.push_back({{"form", test.form->name},
                    {"warmth", test.warmth->name},
                    {"read_ns", read},
                    {"scan_ns", scan},
                    {"scan_over_read", scan / read},
                    {"gate_ns", gate},
                    {"gate_over_read", gate / read},
                    {"gate_of_5us", gate / kShortLaunchNanos}});
  }
  const double allocate = results->Median("allocate");
  std::printf("allocate and free a cached block of 2 MiB: %.1f ns\n", allocate);
  return {{"launches", rows}, {"allocate_free_ns", allocate}};
}

int Main(int argc, char** argv) {
  // Medians of many short repetitions in mixed order: the machine is not ours alone.
  std::vector<char*> arguments = {argv[0], const_cast<char*>("--benchmark_enable_random_interleaving=true"),
                                  const_cast<char*>("--benchmark_repetitions=15"),
                                  const_cast<char*>("--benchmark_min_time=0.01")};
  std::string json_file;
  bool predict = true;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      json_file = argv[++i];
    } else if (std::strcmp(argv[i], "--no-prediction") == 0) {
      predict = false;
    } else {
      arguments.push_back(argv[i]);
    }
  }
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 2;

  const Stage stage = MakeStage(predict);
  std::vector<Case> cases;
  for (const LaunchForm& form : LaunchForms()) {
    for (const Warmth& warmth : kWarmths) {
      Case& test = cases.emplace_back();
      test.form = &form;
      test.warmth = &warmth;
      for (const size_t bytes : form.kernel.parameter_bytes) test.layout.Append(bytes);
      const std::vector<uint64_t> blocks(stage.blocks.begin(),
                                         stage.blocks.begin() + static_cast<std::ptrdiff_t>(warmth.blocks));
      test.sets = MakeArguments(form, warmth.sets, blocks, kBlockBytes);
    }
  }
  Register(stage, cases);
  ResultReporter results;
  benchmark::RunSpecifiedBenchmarks(&results);
  const nlohmann::json report = Report(cases, &results);
  if (!json_file.empty()) std::ofstream(json_file) << report.dump(1) << "\n";
  return 0;
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) { return spillway::bench::Main(argc, argv); }
