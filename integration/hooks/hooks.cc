#include "integration/hooks/hooks.h"

#include "integration/hooks/driver_queries.h"
#include "integration/hooks/hook_table.h"

namespace spillway::integration {
namespace {

// Puts one row's wrapper in place.
struct Installer {
  const std::function<int(const char*, void*)>& install;
  const HookState& state;
  HookReport* report;

  template <Row R>
  void operator()() {
    if constexpr (RowTraits<R>::kUse != RowUse::USED) {
      if constexpr (Wrapper<R>::kInstalled) {
        if (state.real.Get<R>() == nullptr) return;  // not in this driver
        if (install(RowTraits<R>::kInfo.symbol, reinterpret_cast<void*>(&Wrapper<R>::Call)) == 0) {
          ++report->installed;
        } else if (RowTraits<R>::kUse == RowUse::MUST) {
          report->missing.emplace_back(RowTraits<R>::kInfo.symbol);
        }
      } else {
        static_assert(RowTraits<R>::kUse != RowUse::MUST, "a MUST row needs a family that wraps");
      }
    }
  }
};

}  // namespace

HookReport InstallHooks(const std::function<void*(const char*)>& real,
                        const std::function<int(const char*, void*)>& install) {
  // Never freed: a wrapper may run until the process is gone.
  auto* const queries = new DriverFunctionQueries;
  auto* const state = new HookState(queries);
  ForEachRow([&]<Row R>() { state->real.Set(R, real(RowTraits<R>::kInfo.symbol)); });
  queries->SetTable(&state->real, &state->origins);
  SetHookState(state);

  HookReport report;
  ForEachRow(Installer{install, *state, &report});
  return report;
}

HookReport InstallHooks(const spillway_shim* shim) { return InstallHooks(shim->real, shim->install); }

}  // namespace spillway::integration
