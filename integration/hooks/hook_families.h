// Families of wrappers: what to do around a real call, as templates over its arguments. A family says what
// happens (through the gate, held, repeated); a collector says which blocks the arguments name. hook_table.h
// gives each driver function its family.

#ifndef SPILLWAY_INTEGRATION_HOOKS_HOOK_FAMILIES_H_
#define SPILLWAY_INTEGRATION_HOOKS_HOOK_FAMILIES_H_

#include <cstdint>
#include <type_traits>

#include "integration/hooks/hook_context.h"
#include "integration/hooks/hook_rows.h"
#include "integration/hooks/launch_gate.h"

namespace spillway::integration {

// An argument as an address; what is neither a pointer nor 64 bits wide cannot be one of ours.
template <typename T>
uint64_t AddressOf(T value) {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<uint64_t>(value);
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<uint64_t>(value);
  } else {
    return 0;
  }
}

// The stream among the arguments; null, the default stream, when the call takes none.
inline void TakeStream(CUstream* stream, CUstream argument) { *stream = argument; }
inline void TakeStream(CUstream* stream, const CUlaunchConfig* config) {
  if (config != nullptr) *stream = config->hStream;
}
template <typename T>
void TakeStream(CUstream*, const T&) {}

template <typename... A>
CUstream StreamOf(A... args) {
  CUstream stream = nullptr;
  (TakeStream(&stream, args), ...);
  return stream;
}

// The call reads or writes blocks on a stream: resident before it, stamped by it.
template <typename Collector>
struct Gated {
  template <typename... A>
  static CUresult Call(const RowInfo& row, CUresult(CUDAAPI* real)(A...), A... args) {
    HookScope scope;
    Touch* const touch = scope.touch();
    if (touch == nullptr) return real(args...);
    touch->tag = row.tag;
    touch->may_block = row.synchronous;
    Collector::Collect(touch, args...);
    return PassGate(touch, {StreamOf(args...), row.per_thread_default}, [&] { return real(args...); });
  }
};

// The call lets an address go where no later call shows its use: the block stays on the GPU for good.
template <allocator::HoldReason kReason, typename Collector>
struct Held {
  template <typename... A>
  static CUresult Call(const RowInfo& row, CUresult(CUDAAPI* real)(A...), A... args) {
    HookScope scope;
    Touch* const touch = scope.touch();
    if (touch == nullptr) return real(args...);
    touch->tag = row.tag;
    Collector::Collect(touch, args...);
    if (!touch->set().empty()) TellOfHold(touch->state(), kReason, row.symbol);
    return PassHolding(touch, kReason, [&] { return real(args...); });
  }
};

// The call names no block, but may want device memory: repeated once when it runs out.
struct RepeatedWhenFull {
  template <typename... A>
  static CUresult Call(const RowInfo& row, CUresult(CUDAAPI* real)(A...), A... args) {
    return CallOthers(GetHookState(), 0, [&] { return real(args...); });
  }
};

// The call works in ways that cannot be followed: no eviction from now on, and it needs every block.
struct NotFollowed {
  template <typename... A>
  static CUresult Call(const RowInfo& row, CUresult(CUDAAPI* real)(A...), A... args) {
    HookState* const state = GetHookState();
    if (state == nullptr) return real(args...);
    SwitchEvictionOff(state, row.symbol);
    return CallReachingAll(state, {}, 0, [&] { return real(args...); });
  }
};

// A row that needs no wrapper of the engine today: the shim wraps it itself, or it names no block and frees
// none.
struct NotWrapped {};

// The wrapper of one row: the C function that the shim installs.
template <FixedString kBase>
struct HookOf;  // hook_table.h specialises it for each base name of driver_symbols.def

template <Row R, typename Function = typename RowTraits<R>::Function>
struct Wrapper;

template <Row R, typename... A>
struct Wrapper<R, CUresult(CUDAAPI*)(A...)> {
  using Family = typename HookOf<BaseOf<R>()>::Family;
  static constexpr bool kInstalled = !std::is_same_v<Family, NotWrapped>;

  static CUresult CUDAAPI Call(A... args) {
    // Never null: installed only over a function that the driver has, by a state that is published before.
    return Family::Call(RowTraits<R>::kInfo, GetHookState()->real.template Get<R>(), args...);
  }
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_HOOK_FAMILIES_H_
