// gpu_facts FACT[,FACT...] [options]: facts about the device that is there, as JSON on standard output's last line: that
// of one fact, or of several by their names.

#include <cstdio>
#include <map>

#include "tests/command_line.h"
#include "tests/gpu/facts/facts.h"

namespace spillway::gpu {
namespace {

int Run(int argc, char** argv) {
  const std::map<std::string, Json (*)(const FactSetup&)> facts = {
      {"device", &DeviceMemory},  {"placement", &Placement},        {"layouts", &ParameterLayouts},
      {"hash", &HashCost},        {"pinning", &PinningCost},        {"host-handle", &HostHandle},
      {"handles", &Handles},      {"tensor-map", &TensorMapWords},  {"latency", &LaunchLatency},
      {"copies", &CopyRates},     {"loading", &ModuleLoading},      {"full", &FullDevice},
      {"stalls", &Stalls},        {"pointers", &PointerAttributes}, {"two-mappings", &TwoMappings},
      {"reserve", &Reservations}, {"retain", &RetainedHandles}};
  const std::map<std::string, std::vector<std::string> (*)()> cases = {{"handles", &HandleCases},
                                                                       {"stalls", &StallCases}};
  CommandLine line{"Facts about the GPU that is here"};
  FactSetup setup;
  std::vector<std::string> asked;
  bool list = false;
  std::string names;
  for (const auto& [name, unused] : facts) names += (names.empty() ? "" : ", ") + name;
  line.Add("fact", &asked, "one, or several with commas between them: " + names);
  line.Add("--case", &setup.variant,
           "of handles and stalls: one of those that --list prints; of two-mappings: write");
  line.Add("--small", &setup.small, "sizes for simcuda");
  line.Add("--list", &list, "print the cases of handles, or of stalls");
  line.Add("--leave", &setup.leave, "of full: bytes that stay free");
  line.Add("--row-seconds", &setup.row_seconds, "of latency: the most that a row may take", 1e-6, 60.0);
  line.Parse(argc, argv);
  if (list) {
    const auto listed = cases.find(asked.empty() ? "handles" : asked.front());
    if (listed == cases.end()) return 2;
    for (const std::string& name : listed->second()) std::printf("%s\n", name.c_str());
    return 0;
  }
  Json metrics = Json::object();
  for (const std::string& fact : asked) {
    const auto found = facts.find(fact);
    if (found == facts.end()) {
      std::fprintf(stderr, "%s: there is no such fact; see --help\n", fact.c_str());
      return 2;
    }
    metrics[fact] = found->second(setup);
  }
  if (metrics.size() == 1) metrics = Json(metrics.begin().value());
  // A driver's answer may be any bytes: a name that a wrong handle gave, say.
  std::printf("RESULT %s\n", metrics.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  return 0;
}

}  // namespace
}  // namespace spillway::gpu

int main(int argc, char** argv) { return spillway::gpu::Run(argc, argv); }
