// Random numbers of a queued operator: seed and offset are taken from the CUDA generator at the launch, so that
// manual_seed, get_rng_state and checkpointing keep their meaning; the stream thread draws from a CPU generator of the
// call's own, so that the order of execution cannot change a bit.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_TORCH_RANDOM_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_TORCH_RANDOM_H_

#include <ATen/core/ivalue.h>

#include <cstdint>

namespace simcuda::ops {

// Advances the generator in `argument` (the device's default one when it is None) and returns a seed for one call.
uint64_t DrawSeed(const c10::IValue& argument, c10::DeviceIndex device);

}  // namespace simcuda::ops

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_TORCH_RANDOM_H_
