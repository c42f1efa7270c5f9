// The check at the start: whether the user's settings can work on this machine. The engine asks when it
// opens, `spillway run` before it starts the command, and spillway.enable() through the C ABI; all give the
// same messages. CheckStart is pure: it compares settings with facts. InspectMachine finds the facts: it asks
// the system for sizes, and tries each file and directory that a setting names, which leaves nothing behind.
// Any thread may call it. A fact that cannot be found does not count against a setting.

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
  std::string problem;       // why no spill file can be created in it; empty: one can
  uint64_t free_bytes = 0;   // of its file system, for this user
  uint64_t total_bytes = 0;  // 0: not known
  bool alone = true;         // whether no other process spills to that file system now
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
  std::string no_cipher;               // why encryption, which is wanted, is not possible; empty: it is
  std::vector<uint64_t> device_bytes;  // of each GPU that is visible; empty: not known
};

// Finds the facts about what `settings` name. Does not ask the driver: device_bytes stays empty. `root`: for
// tests, as in machine.h.
MachineFacts InspectMachine(const Settings& settings, const std::string& root = "");

// Returns the bytes of each visible GPU, for device_bytes; empty if the driver does not answer. Called after
// cuInit.
std::vector<uint64_t> BytesOfDevices(const allocator::CudaDriver& driver);

// Returns kInvalidArgument for the first setting that cannot work: one sentence with the name, the value, and
// the values accepted here. Returns kUnavailable, with the same sentence, if that may change within seconds:
// the space of an ended process comes free late. Appends problems that do not stop a job to `warnings`.
absl::Status CheckStart(const Settings& settings, const SettingSource& source, const MachineFacts& facts,
                        std::vector<std::string>* warnings);

// Like CheckStart, but looks again for up to 10 s while the answer is kUnavailable. `device_bytes`: as in
// MachineFacts.
absl::Status CheckStartHere(const Settings& settings, const SettingSource& source,
                            const std::vector<uint64_t>& device_bytes, std::vector<std::string>* warnings);

// Reads and checks settings given by name. The other settings are read from the variables of the environment,
// then from the files of settings. `describe` returns the name of a given setting for a message. Callers
// outside the engine use this.
absl::Status CheckGivenSettings(const std::map<std::string, std::string>& given,
                                const std::function<std::string(const std::string& name)>& describe,
                                const std::vector<uint64_t>& device_bytes);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_START_CHECK_H_
