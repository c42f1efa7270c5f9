// Families of wrappers: what to do around a real call, as templates over its arguments. A family says what
// happens (through the gate, pinned, repeated); an access-set builder says which blocks the arguments name.
// hook_table.cc gives each driver function its family. The application's threads are in here instead of in
// the driver: what a family returns is the driver's result, or the gate's refusal.

#ifndef SPILLWAY_INTEGRATION_HOOKS_HOOK_FAMILIES_H_
#define SPILLWAY_INTEGRATION_HOOKS_HOOK_FAMILIES_H_

#include <cstdint>
#include <type_traits>

#include "integration/hooks/access_set_builder.h"
#include "integration/hooks/hook_context.h"
#include "integration/hooks/hook_rows.h"
#include "integration/hooks/launch_gate.h"

namespace spillway::integration {

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

// The first argument of that type; null when the call has none.
template <typename T>
void TakeFirst(T* found, T argument) {
  if (*found == nullptr) *found = argument;
}
template <typename T, typename Other>
void TakeFirst(T*, const Other&) {}
template <typename T, typename... A>
T FirstOf(A... args) {
  T found = nullptr;
  (TakeFirst<T>(&found, args), ...);
  return found;
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
    if (!touch->set().empty()) touch->state()->pin_reports.Report(kReason, row.symbol);
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
struct HookOf;  // hook_table.cc specialises it for each base name of driver_symbols.def

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
