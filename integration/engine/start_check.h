// The check at the start: whether what the user has set can work on this machine. The engine asks when it
// opens, `spillway run` before it starts the command, and spillway.enable() through the C ABI; all say the
// same words. CheckStart is pure: it compares settings with facts. LookAtMachine finds the facts: it asks the
// system for sizes, and tries each file and directory that a setting names, which leaves nothing behind. Any
// thread. What cannot be found out is not held against a setting.

#ifndef SPILLWAY_INTEGRATION_ENGINE_START_CHECK_H_
#define SPILLWAY_INTEGRATION_ENGINE_START_CHECK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "allocator/driver/cuda_driver.h"
#include "integration/engine/machine.h"
#include "integration/settings/settings.h"

namespace spillway::integration {

// A spill directory: one that the settings name for this rank, or the default one.
struct DirectoryFacts {
  std::string path;
  std::string problem;       // why no spill file can be made in it; empty: one can
  uint64_t free_bytes = 0;   // of its file system, for this user
  uint64_t total_bytes = 0;  // 0: not known
  bool alone = true;         // no other process spills to that file system now
};

// A file that a setting names and that cannot be used as it must be.
struct FileProblem {
  const char* setting;  // "metrics"
  std::string accepted;
};

struct MachineFacts {
  HostMemory host;
  std::vector<DirectoryFacts> directories;
  std::vector<FileProblem> files;
  std::string no_cipher;               // why nothing can be encrypted, where that is wanted; empty: it can
  std::vector<uint64_t> device_bytes;  // of each GPU that is visible; empty: not known
};

// Looks at what `settings` name. Does not ask the driver: device_bytes stays empty. `root`: for tests, as in
// machine.h.
MachineFacts LookAtMachine(const Settings& settings, const std::string& root = "");

// Bytes of each visible GPU, for device_bytes; empty where the driver does not answer. After cuInit.
std::vector<uint64_t> BytesOfDevices(const allocator::CudaDriver& driver);

// kInvalidArgument for the first setting that cannot work: one sentence with the name, the value, and what is
// accepted here. kUnavailable, with the same sentence, where that may change within seconds: space of an
// ended process comes free late. Appends what does not stop a job to `warnings`.
absl::Status CheckStart(const Settings& settings, const SettingSource& source, const MachineFacts& facts,
                        std::vector<std::string>* warnings);

// The same, looking again for up to 10 s while the answer is kUnavailable. `device_bytes` as above.
absl::Status CheckStartHere(const Settings& settings, const SettingSource& source,
                            const std::vector<uint64_t>& device_bytes, std::vector<std::string>* warnings);

// Reads and checks settings given by name, and for those that are not there the variables of the environment,
// then the files of settings. `describe`: what a given setting is called in a message. This is what callers
// outside the engine use.
absl::Status CheckGivenSettings(const std::map<std::string, std::string>& given,
                                const std::function<std::string(const std::string& name)>& describe,
                                const std::vector<uint64_t>& device_bytes);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_START_CHECK_H_
