// gpu_facts FACT [options]: one fact about the device that is there, as JSON on standard output's last line.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>

#include "tests/gpu/facts/facts.h"

namespace spillway::gpu {
namespace {

int Run(int argc, char** argv) {
  const std::map<std::string, Json (*)(const FactSetup&)> facts = {
      {"handles", &Handles},      {"tensor-map", &TensorMapWords},  {"latency", &LaunchLatency},
      {"copies", &CopyRates},     {"loading", &ModuleLoading},      {"full", &FullDevice},
      {"stalls", &Stalls},        {"pointers", &PointerAttributes}, {"two-mappings", &TwoMappings},
      {"reserve", &Reservations}, {"retain", &RetainedHandles}};
  const std::map<std::string, std::vector<std::string> (*)()> cases = {{"handles", &HandleCases},
                                                                       {"stalls", &StallCases}};
  CLI::App app{"Facts about the GPU that is here"};
  FactSetup setup;
  std::string fact;
  bool list = false;
  app.add_option(
      "fact", fact,
      "handles, tensor-map, latency, copies, loading, full, stalls, pointers, two-mappings, reserve "
      "or retain");
  app.add_option("--case", setup.variant,
                 "of handles and stalls: one of those that --list prints; of two-mappings: write");
  app.add_flag("--small", setup.small, "sizes for simcuda");
  app.add_flag("--list", list, "print the cases of handles, or of stalls");
  app.add_option("--leave", setup.leave, "of full: bytes that stay free");
  app.add_option("--row-seconds", setup.row_seconds, "of latency: the most that a row may take")
      ->check(CLI::Range(1e-6, 60.0));
  CLI11_PARSE(app, argc, argv);
  if (list) {
    const auto listed = cases.find(fact.empty() ? "handles" : fact);
    if (listed == cases.end()) return 2;
    for (const std::string& name : listed->second()) std::printf("%s\n", name.c_str());
    return 0;
  }
  const auto found = facts.find(fact);
  if (found == facts.end()) {
    std::fprintf(stderr, "%s: there is no such fact; see --help\n", fact.c_str());
    return 2;
  }
  const Json figures = found->second(setup);
  // A driver's answer may be any bytes: a name that a wrong handle gave, say.
  std::printf("RESULT %s\n", figures.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  return 0;
}

}  // namespace
}  // namespace spillway::gpu

int main(int argc, char** argv) { return spillway::gpu::Run(argc, argv); }
