// simcuda_* functions that change settings while the job runs.
#include <string>

#include "integration/simcuda/driver/core/settings.h"
#include "integration/simcuda/driver/execution/stream.h"
#include "integration/simcuda/driver/machine/driver.h"
#include "integration/simcuda/driver/machine/hardware_time.h"

SIMCUDA_API int simcuda_set(const char* name, const char* value) {
  if (name == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto result = simcuda::SetByName(name, value, simcuda::IsAlive());
  if (result != simcuda::SetResult::kOk) return CUDA_ERROR_INVALID_VALUE;
  const std::string set = name;
  const bool of_profile = set.starts_with("HARDWARE") || set == "TIME_SCALE";
  return !of_profile || simcuda::ApplyHardware() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIMCUDA_API int simcuda_set_memory(int device, uint64_t bytes) {
  simcuda::Device* found = simcuda::FindDevice(device);
  if (found == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  found->set_capacity(bytes);
  return CUDA_SUCCESS;
}

SIMCUDA_API void simcuda_hold_streams(int hold) { simcuda::HoldStreams(hold != 0); }
