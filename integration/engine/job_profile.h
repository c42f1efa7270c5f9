// JobProfile: the facts about kernels and the machine that a job has before it has measured any
// (SPILLWAY_PROFILE, and the shipped table of PyTorch's kernels), and those that it keeps for the next run.
// Runtime creates it and begins it with the first device; each predictor asks it on its thread; the
// reporter's thread keeps what was learned. The facts are guesses: a plan may count on them, but residency
// samples each once, and checks every drop. No call fails: a profile that cannot be read or written costs a
// line in the log at most.

#ifndef SPILLWAY_INTEGRATION_ENGINE_JOB_PROFILE_H_
#define SPILLWAY_INTEGRATION_ENGINE_JOB_PROFILE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "allocator/driver/cuda_driver.h"
#include "allocator/memory/address_map.h"
#include "allocator/residency/residency.h"
#include "integration/engine/devices.h"
#include "integration/hooks/function_registry.h"
#include "integration/prediction/planning_machine.h"
#include "integration/profile/job_facts.h"
#include "io/store/spill_store.h"

namespace spillway::integration {

// Returns the key of facts about kernels and rates: the PyTorch of this process, the driver and the device.
// Parts that cannot be found are empty. Any thread.
ProfileKey FindProfileKey(const allocator::CudaDriver& driver, int device);

class JobProfile {
 public:
  // `path`: as SPILLWAY_PROFILE says. `devices` and `functions` must outlive this object; `functions` may be
  // null.
  JobProfile(std::optional<std::string> path, const Devices* devices, FunctionRegistry* functions);

  // ---- At the first device, before its residency is made. One thread.

  // Reads the profile. `directories`: the spill directories of this process.
  void Begin(const ProfileKey& key, const std::vector<std::string>& directories);
  // The rates of the profile; all 0 where there is none.
  KnownRates rates() const;
  // Hands the profile's speeds on to the store's directories.
  void GuessSpeeds(io::SpillStore* disk) const;

  // ---- From then on.

  // The facts and guesses about the writes of the device's launches by now; null: none. `residency`: the
  // device's. Called on the thread of the device's predictor.
  std::shared_ptr<const policy::WriteFacts> Writes(int device, allocator::Residency* residency);
  // Keeps what was learnt, if there is anything new and the process has spilled so many bytes. `directories`:
  // the store's, as they are now. One thread at a time.
  void Keep(uint64_t spilled_bytes, std::span<const io::DirectoryStats> directories = {});

 private:
  struct DeviceGuesses {
    bool profile = false;  // those of the profile were handed on
    size_t seen = 0;       // the registry's functions whose names were examined
  };
  void ReportUnusable(const absl::Status& why) const;
  bool IsOfName(uint64_t tag) const;
  io::DriveSpeed SpeedOf(const std::string& directory) const;
  void LearnSpeeds(std::span<const io::DirectoryStats> directories);
  JobFacts Learnt();

  const std::optional<std::string> asked_;
  const Devices* const devices_;
  FunctionRegistry* const functions_;

  // Constant after Begin.
  std::string path_;  // empty: there is none
  uint64_t drives_ = 0;
  JobFacts before_;  // its key is this job's

  std::array<DeviceGuesses, allocator::kMaxDevices> guesses_;  // each of one predictor's thread

  // Used by the thread that keeps facts alone.
  ProfileRates rates_;                       // the latest that were news
  std::vector<DirectorySpeed> directories_;  // likewise
  std::string kept_;                         // as written last, or read
  bool failed_ = false;                      // to write, and that was reported
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_JOB_PROFILE_H_
