// `spillway doctor`: inspects this machine as a job would find it, and prints what works, what does not, and
// which settings it would choose. `python -m spillway` is the same for the Python that calls it. It measures
// for as long as its options allow, leaves no file behind, starts no engine, and changes nothing. One thread,
// and one more while a link is measured. A failure is a finding.

#ifndef SPILLWAY_INTEGRATION_CLI_DOCTOR_DOCTOR_H_
#define SPILLWAY_INTEGRATION_CLI_DOCTOR_DOCTOR_H_

#include <CLI/CLI.hpp>
#include <map>
#include <string>

namespace spillway::integration {

struct DoctorOptions {
  std::map<std::string, std::string> settings;  // by name, as `spillway run` takes them
  std::string library_directory;                // folder of libspillway.so and the engine; the caller's
  std::string python;                           // that is asked about PyTorch; empty: the first of PATH
  std::string ssd_writes;                       // what a drive is rated for, "600TB"; empty: not known
  double disk_seconds = 10;                     // for each directory; 0: no rates
  bool quick = false;
  bool json = false;
  bool installation = false;  // leaves out GPUs, limits and disks
  bool preloaded = false;     // this process was started with libspillway.so in front, and again without
};

// Adds the subcommand; `options` must live until the command line has been parsed.
CLI::App* AddDoctor(CLI::App* app, DoctorOptions* options);

// Prints the report on standard output, progress on standard error. Returns the exit status: 0 if Spillway
// can serve a job, with limits or without; 1 if it cannot; 2 for wrong use, which includes settings that no
// job would take, with one line on standard error.
int Doctor(const DoctorOptions& options, char** arguments);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_DOCTOR_DOCTOR_H_
