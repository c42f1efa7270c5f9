// Families of wrappers: templates over the arguments of a real call that do what has to be done around it. A
// family decides what happens to the call: it goes through the gate, its blocks are pinned, it is repeated. A
// reader of arguments (copy_access_sets.h, launch_access_sets.h) adds the blocks that the arguments name.
// hook_table.cc gives each driver function its family. A family runs on the application's threads in place of
// the driver; the result is the driver's, or the gate's refusal.

#ifndef SPILLWAY_INTEGRATION_HOOKS_HOOK_FAMILIES_H_
#define SPILLWAY_INTEGRATION_HOOKS_HOOK_FAMILIES_H_

#include <cstdint>
#include <type_traits>

#include "integration/hooks/access_set_builder.h"
#include "integration/hooks/early_reads.h"
#include "integration/hooks/hook_context.h"
#include "integration/hooks/hook_rows.h"
#include "integration/hooks/launch_gate.h"

namespace spillway::integration {

// StreamOf returns the stream among the arguments; null (the default stream) if the call has none. A launch
// with a config has its stream there.
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

// FirstOf<T> returns the first argument of that type; null if the call has none.
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

// Wraps a call that reads or writes blocks on a stream: they are resident before it, and its use of them is
// recorded.
template <typename Arguments, bool kEarly = false>  // kEarly: see GatedEarly
struct Gated {
  template <typename... A>
  static CUresult Call(const RowInfo& row, CUresult(CUDAAPI* real)(A...), A... args) {
    HookScope scope;
    AccessSetBuilder* const builder = scope.builder();
    // There is no block yet, or the call comes from inside another hooked call.
    if (builder == nullptr) return real(args...);
    builder->tag = row.tag;
    builder->may_block = row.synchronous;
    Arguments::Collect(builder, args...);
    const allocator::StreamRef stream{StreamOf(args...), row.per_thread_default};
    const auto pass = [&] { return PassGate(builder, stream, [&] { return real(args...); }); };
    if constexpr (kEarly) {
      return PassEarlyReads(builder, stream, pass);
    } else {
      return pass();
    }
  }
};
// Wraps a call that may read some of its blocks before its stream gets there: these have arrived before the
// call is made.
template <typename Arguments>
using GatedEarly = Gated<Arguments, /*kEarly=*/true>;

// Wraps a call that lets an address go where no later call shows its use: the block stays on the GPU until it
// is freed.
template <allocator::PinReason kReason, typename Arguments>
struct Pinned {
  template <typename... A>
  static CUresult Call(const RowInfo& row, CUresult(CUDAAPI* real)(A...), A... args) {
    HookScope scope;
    AccessSetBuilder* const builder = scope.builder();
    if (builder == nullptr) return real(args...);
    builder->tag = row.tag;
    Arguments::Collect(builder, args...);
    if (!builder->set().empty()) builder->state()->pin_reports.Report(kReason, row.symbol);
    return PassPinning(builder, kReason, [&] { return real(args...); });
  }
};

// Wraps a call that names no block but may need device memory. It is repeated once if it runs out of memory
// and chunks could be given back to the driver.
struct RepeatedWhenFull {
  template <typename... A>
  static CUresult Call(const RowInfo& row, CUresult(CUDAAPI* real)(A...), A... args) {
    return CallWithRetry(GetHookState(), kUnknownBytes, [&] { return real(args...); });
  }
};

// Wraps a call that works in ways which are not followed. It ends evictions and needs every block. It is
// refused with out-of-memory if not all of them fit.
struct NotFollowed {
  template <typename... A>
  static CUresult Call(const RowInfo& row, CUresult(CUDAAPI* real)(A...), A... args) {
    HookState* const state = GetHookState();
    if (state == nullptr) return real(args...);
    SwitchEvictionOff(state, row.symbol);
    return CallReachingAll(state, {}, 0, [&] { return real(args...); });
  }
};

// Marks a row without a wrapper of the engine: the preload wraps it itself, or it names no block and frees
// none.
struct NotWrapped {};

// The family of all rows with that base name.
template <FixedString kBase>
struct HookOf;  // hook_table.cc specializes it for each base name of driver_symbols.def

// Wrapper<R>::Call has the row's own type, since the application calls it in place of the driver's function.
// kInstalled: whether the row has a wrapper at all.
template <Row R, typename Function = typename RowTraits<R>::Function>
struct Wrapper;

template <Row R, typename... A>
struct Wrapper<R, CUresult(CUDAAPI*)(A...)> {
  using Family = typename HookOf<BaseOf<R>()>::Family;
  static constexpr bool kInstalled = !std::is_same_v<Family, NotWrapped>;

  static CUresult CUDAAPI Call(A... args) {
    // Never null: a wrapper is installed only over a function that the driver has, by a state that is
    // published before.
    return Family::Call(RowTraits<R>::kInfo, GetHookState()->real.template Get<R>(), args...);
  }
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_HOOK_FAMILIES_H_
