// simcuda-run [options] -- COMMAND...: runs a command on a machine without a GPU as if it had one. It sets
// the SIMCUDA_* variables, puts the stand-in driver in front of LD_LIBRARY_PATH and the stand-in runtime
// behind whatever LD_PRELOAD holds, and becomes the command. The command runs in this process.
#include <glob.h>
#include <limits.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "integration/simcuda/driver/core/settings.h"

namespace {

constexpr int kUsageError = 2;
constexpr int kNotFound = 127;  // as a shell

struct Option {
  const char* flag;
  const char* variable;
  const char* help;
  std::string value;
};

// One row per option; a row without a value leaves the variable as it is in the environment.
std::vector<Option> Options() {
  return {
      {"--memory", "SIMCUDA_MEMORY", "memory of each device, such as 2GiB or 500MB", ""},
      {"--devices", "SIMCUDA_DEVICES", "number of devices, 1 to 8", ""},
      {"--copy-bandwidth", "SIMCUDA_COPY_BANDWIDTH", "bytes a second of each copy direction, such as 4GB",
       ""},
      {"--copy-bandwidth-htod", "SIMCUDA_COPY_BANDWIDTH_HTOD", "the same, to the device only", ""},
      {"--copy-bandwidth-dtoh", "SIMCUDA_COPY_BANDWIDTH_DTOH", "the same, from the device only", ""},
      {"--copy-latency", "SIMCUDA_COPY_LATENCY", "microseconds before a copy starts", ""},
      {"--kernel-time", "SIMCUDA_KERNEL_TIME", "least time of a kernel in microseconds", ""},
      {"--hardware", "SIMCUDA_HARDWARE", "costs of a machine: a100, h100, h200, rtx4090 or a file", ""},
      {"--hardware-end", "SIMCUDA_HARDWARE_END", "assumed figures of it: their low or high end", ""},
      {"--hardware-form", "SIMCUDA_HARDWARE_FORM", "whether launches wait for the memory lock: wait or pass",
       ""},
      {"--time-scale", "SIMCUDA_TIME_SCALE", "stretches the machine's costs, 1 to 20", ""},
      {"--copy-bytes", "SIMCUDA_COPY_BYTES", "all, or sample: large copies move a few words of each 64 KiB",
       ""},
      {"--mode", "SIMCUDA_MODE", "a touch of unmapped device memory: strict stops, report counts, fault, off",
       ""},
      {"--poison", "SIMCUDA_POISON", "off, recycle (released memory), unmap (also what was unmapped)", ""},
      {"--protection-keys", "SIMCUDA_PROTECTION_KEYS",
       "close device memory to the host: off, on, or try where the machine has memory protection keys", ""},
      {"--granularity", "SIMCUDA_GRANULARITY", "granularity of virtual memory management, 64KiB to 1GiB", ""},
      {"--delay", "SIMCUDA_DELAY", "random delay before each operation, up to so many microseconds", ""},
      {"--seed", "SIMCUDA_SEED", "seed of the random delays", ""},
      {"--stats", "SIMCUDA_STATS", "file for counts at exit, as JSON", ""},
      {"--log", "SIMCUDA_LOG", "file for one line per launch and copy", ""},
  };
}

// build/bin/simcuda-run -> build/lib/simcuda, or "" when it is not there.
std::string LibraryDirectory() {
  char self[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
  if (length <= 0) return "";
  const std::string path(self, static_cast<size_t>(length));
  const std::string beside = path.substr(0, path.rfind('/')) + "/../lib/simcuda";
  char resolved[PATH_MAX];
  return realpath(beside.c_str(), resolved) == nullptr ? "" : resolved;
}

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The wheels of CUDA 12 bring their runtime in this folder, those of 13 in another one.
constexpr char kRuntimeOf12[] = "/../lib/python3*/site-packages/nvidia/cuda_runtime/lib/libcudart.so.12";

bool IsThere(const std::string& pattern) {
  glob_t found{};
  const bool there = glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) == 0;
  globfree(&found);
  return there;
}

// The major version of CUDA that the command's PyTorch was built for, by the environment of the first Python
// or script among its words; 13 where nothing says otherwise. A process can have one runtime only.
std::string RuntimeMajorOf(const std::vector<std::string>& command) {
  for (const std::string& word : command) {
    const size_t slash = word.rfind('/');
    if (slash != std::string::npos && IsThere(word.substr(0, slash) + kRuntimeOf12)) return "12";
  }
  return "13";
}

void SetLibraryPaths(const std::string& directory, const std::string& cuda) {
  const std::string path = Environment("LD_LIBRARY_PATH");
  setenv("LD_LIBRARY_PATH", path.empty() ? directory.c_str() : (directory + ":" + path).c_str(), 1);
  const std::string runtime = directory + "/libcudart.so." + cuda;
  if (access(runtime.c_str(), R_OK) != 0) {
    std::fprintf(stderr,
                 "simcuda-run: %s is not there: programs that use the CUDA runtime will not find a device\n",
                 runtime.c_str());
    return;
  }
  const std::string preload = Environment("LD_PRELOAD");
  setenv("LD_PRELOAD", preload.empty() ? runtime.c_str() : (preload + ":" + runtime).c_str(), 1);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Runs a command on a stand-in GPU that lives in host memory.", "simcuda-run");
  std::vector<Option> options = Options();
  for (Option& option : options) app.add_option(option.flag, option.value, option.help);
  std::string cuda;
  app.add_option("--cuda", cuda,
                 "12 or 13: the CUDA runtime to stand in for; else that of the Python in the command")
      ->check(CLI::IsMember({"12", "13"}));
  std::vector<std::string> command;
  app.add_option("COMMAND", command, "the command and its arguments, after --")->required();
  app.positionals_at_end();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageError;
  }

  for (const Option& option : options) {
    if (!option.value.empty()) setenv(option.variable, option.value.c_str(), 1);
  }
  // A job should stumble over a block that lost its copy-in, even when it gets the same memory back.
  setenv("SIMCUDA_POISON", "unmap", 0);
  if (!simcuda::ReadEnvironment()) return kUsageError;

  const std::string directory = LibraryDirectory();
  if (directory.empty()) {
    std::fprintf(stderr,
                 "simcuda-run: the folder ../lib/simcuda beside this program is not there: build it first\n");
    return kUsageError;
  }
  SetLibraryPaths(directory, cuda.empty() ? RuntimeMajorOf(command) : cuda);

  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  std::fprintf(stderr, "simcuda-run: cannot run %s: %s\n", arguments[0], std::strerror(errno));
  return kNotFound;
}
