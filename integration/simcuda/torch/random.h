// Random numbers of a queued operator: seed and offset are taken from the CUDA generator at the launch, so
// that manual_seed, get_rng_state and checkpointing keep their meaning. The stream thread draws from a CPU
// generator of the call's own, so the order of execution cannot change a bit.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_TORCH_RANDOM_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_TORCH_RANDOM_H_

#include <ATen/core/ivalue.h>

#include <cstdint>

namespace simcuda::ops {

// The start of one call's random numbers. A captured call reads it from the generator's own state in device
// memory, at each replay anew.
struct CallSeed {
  uint64_t seed = 0;
  uint64_t offset = 0;               // captured: within the graph
  const int64_t* seed_at = nullptr;  // captured; read when the call runs
  const int64_t* offset_at = nullptr;

  uint64_t Value() const;
};

// Advances the generator in `argument` (the device's default one if it is None) and returns a seed for one
// call.
CallSeed DrawSeed(const c10::IValue& argument, c10::DeviceIndex device);

}  // namespace simcuda::ops

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_TORCH_RANDOM_H_
