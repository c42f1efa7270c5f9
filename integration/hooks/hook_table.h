// The table of hooks: which family wraps which driver function, and the function that installs a wrapper for
// each HOOK and MUST row of driver_symbols.def that needs one. The engine calls it once, on the thread of the
// first cuInit, before any other thread comes through the preload. A MUST row that cannot be wrapped is
// reported; nothing may be evicted then.

#ifndef SPILLWAY_INTEGRATION_HOOKS_HOOK_TABLE_H_
#define SPILLWAY_INTEGRATION_HOOKS_HOOK_TABLE_H_

#include <functional>
#include <string>
#include <vector>

#include "integration/hooks/hook_context.h"
#include "integration/preload/shim_abi.h"

namespace spillway::integration {

struct HookReport {
  int installed = 0;                 // the number of wrappers
  std::vector<std::string> missing;  // MUST rows that the driver has and that could not be wrapped
};

// Creates the HookState and installs the wrappers. `real` returns a driver symbol's address or null;
// `install` returns 0 if the wrapper is in place. Called once in a process, before any other thread calls the
// driver through the preload. Wrappers pass calls through until PublishHookContext.
HookReport InstallHooks(const std::function<void*(const char*)>& real,
                        const std::function<int(const char*, void*)>& install);
HookReport InstallHooks(const spillway_shim* shim);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_HOOK_TABLE_H_
