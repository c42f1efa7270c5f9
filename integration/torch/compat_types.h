// The types of PyTorch's allocator interface under one name for all minors (versions.txt), and substitutes
// for what a minor lacks of them: PyTorch moved them twice between 2.4 and 2.11. Everything in
// integration/torch includes this instead of PyTorch's own header of types. It has no state; no call fails;
// thread-safe.

#ifndef SPILLWAY_INTEGRATION_TORCH_COMPAT_TYPES_H_
#define SPILLWAY_INTEGRATION_TORCH_COMPAT_TYPES_H_

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/Exception.h>
#include <c10/util/env.h>
#if __has_include(<torch/headeronly/version.h>)
#include <torch/headeronly/version.h>
#else
#include <torch/version.h>
#endif

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>

// Whether we are compiled against PyTorch 2.`minor` or a newer one.
#define SPILLWAY_TORCH_SINCE(minor) (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= (minor))

namespace spillway::integration {

namespace torch_cuda = c10::cuda::CUDACachingAllocator;

// Statistics: DeviceStats, Stat, StatArray, StatType.
#if SPILLWAY_TORCH_SINCE(5)
namespace torch_stats = c10::CachingDeviceAllocator;
#else
namespace torch_stats = torch_cuda;
#endif

// The number of a private pool.
#if SPILLWAY_TORCH_SINCE(9)
using PoolId = c10::MempoolId_t;
#else
using PoolId = c10::cuda::MempoolId_t;
#endif
// A number that is no pool's: blocks outside of all private pools.
inline constexpr PoolId kNoPool{0, 0};

// The facts about an event of the history. TraceLog fills them in; a field that the minor's event lacks is
// not used.
struct TraceFacts {
  torch_cuda::TraceEntry::Action action;
  c10::DeviceIndex device;
  size_t address;                                 // of the block; of a refusal: the device's free bytes
  size_t bytes;                                   // as asked for; of a segment: as the statistics count them
  void* stream;                                   // a cudaStream_t: the block's own
  std::shared_ptr<c10::GatheredContext> context;  // a stack, or null if history keeps none
  std::string compile_context;                    // since 2.8
  std::string user_metadata;                      // since 2.10
};

// Returns an event of a block outside of all pools, now. The time is a reading of the clock counter, which
// TraceLog turns into microseconds when a snapshot asks.
inline torch_cuda::TraceEntry MakeTraceEntry(TraceFacts facts) {
  return {
    facts.action, facts.device, facts.address, facts.bytes, static_cast<cudaStream_t>(facts.stream),
#if SPILLWAY_TORCH_SINCE(8)
        kNoPool,
#endif
        c10::getApproximateTime(), std::move(facts.context),
#if SPILLWAY_TORCH_SINCE(8)
        std::move(facts.compile_context),
#endif
#if SPILLWAY_TORCH_SINCE(10)
        std::move(facts.user_metadata),
#endif
  };
}

// Returns whether an event is one of memory outside of all private pools. Events do not tell before 2.8: the
// answer is false then, and what depends on it is left undone.
inline bool IsOutsidePools(const torch_cuda::TraceEntry& event) {
#if SPILLWAY_TORCH_SINCE(8)
  return event.mempool_ == kNoPool;
#else
  return false;
#endif
}

// Returns the number of an action that history is to leave out, by PyTorch's word for it. No action can be
// left out before 2.11: -1, which no action has.
inline int TraceActionNumber(const std::string& word) {
#if SPILLWAY_TORCH_SINCE(11)
  return static_cast<int>(c10::CachingDeviceAllocator::parseTraceEntryAction(word));
#else
  return -1;
#endif
}

// Returns bytes as text, as in PyTorch's out-of-memory message.
#if SPILLWAY_TORCH_SINCE(5)
inline std::string SizeText(uint64_t bytes) { return torch_stats::format_size(bytes); }
#else  // native's own is private to it
inline std::string SizeText(uint64_t bytes) {
  constexpr const char* kUnits[] = {" KiB", " MiB", " GiB"};
  if (bytes <= 1024) return std::to_string(bytes) + " bytes";
  double amount = static_cast<double>(bytes) / 1024;
  int unit = 0;
  for (; amount > 1024 && unit < 2; ++unit) amount /= 1024;
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f", amount);
  return std::string(text) + kUnits[unit];
}
#endif

// Returns a variable of PyTorch's own, as PyTorch reads it: since 2.6 under the lock that its own writes
// take.
inline std::optional<std::string> PyTorchVariable(const char* name) {
#if SPILLWAY_TORCH_SINCE(6)
  return c10::utils::get_env(name);
#else
  const char* const value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
#endif
}

// Whether native's memory fraction may be asked for at any time. Before 2.11 the question makes its device
// the current one, with a context of its own (seen with 2.6).
inline constexpr bool kFractionKeepsDevice = SPILLWAY_TORCH_SINCE(11);

// Whether PyTorch asks for a block's base only to share it with another process: it had no call for that
// before 2.5.
inline constexpr bool kBaseIsForSharing = !SPILLWAY_TORCH_SINCE(5);

// Returns the exception that PyTorch raises for a device's error, to be thrown by the caller
// (refused_calls.cc). Python gets torch.AcceleratorError with the number; before 2.8 RuntimeError, which has
// the text alone.
#if SPILLWAY_TORCH_SINCE(8)
inline c10::AcceleratorError DeviceFailure(c10::SourceLocation place, int32_t error, std::string text) {
  return {place, error, std::move(text)};
}
#else
inline c10::Error DeviceFailure(c10::SourceLocation place, int32_t, std::string text) {
  return {place, std::move(text)};
}
#endif

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_TORCH_COMPAT_TYPES_H_
