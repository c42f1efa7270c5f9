// Drawing the seed of one call from a CUDA generator.
#include "integration/simcuda/torch/random.h"

#include <ATen/cuda/CUDAGeneratorImpl.h>

#include <mutex>
#include <optional>

namespace simcuda::ops {
namespace {

// The offset of a CUDA generator advances in fours: one Philox call gives four numbers.
constexpr uint64_t kOffsetStep = 4;

uint64_t Mix(uint64_t word) {
  word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9ull;
  word = (word ^ (word >> 27)) * 0x94D049BB133111EBull;
  return word ^ (word >> 31);
}

}  // namespace

uint64_t CallSeed::Value() const {
  const bool captured = seed_at != nullptr;
  const uint64_t from = captured ? static_cast<uint64_t>(*seed_at) : seed;
  const uint64_t at = captured ? static_cast<uint64_t>(*offset_at) + offset : offset;
  return Mix(Mix(from + 0x9E3779B97F4A7C15ull) + at);
}

CallSeed DrawSeed(const c10::IValue& argument, c10::DeviceIndex device) {
  std::optional<at::Generator> given;
  if (argument.isGenerator()) given = argument.toGenerator();
  auto* generator = at::get_generator_or_default<at::CUDAGeneratorImpl>(
      given, at::cuda::detail::getDefaultCUDAGenerator(device));
  at::PhiloxCudaState state;
  {
    std::lock_guard lock(generator->mutex_);
    state = generator->philox_cuda_state(kOffsetStep);
  }
  if (state.captured_) return {0, state.offset_intragraph_, state.seed_.ptr, state.offset_.ptr};
  return {state.seed_.val, state.offset_.val, nullptr, nullptr};
}

}  // namespace simcuda::ops
