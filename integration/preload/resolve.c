/* The first call through a row of the function table, from trampolines.S: opens the real driver, puts the
 * shim's own wrappers in place, and reports a must-hook that is called while it has no wrapper. */

#include "integration/preload/shim.h"

static int CalledWhileOpening(void) { return kCudaNotInitialized; }

int PrepareDriver(void) {
  static const struct OwnWrapper kOwn[] = {
      {"cuInit", (void*)WrappedInit},
      {"cuGetProcAddress", (void*)WrappedGetProcAddress},
      {"cuGetProcAddress_v2", (void*)WrappedGetProcAddressV2},
      {NULL, NULL},
  };
  return DriverIsOpen() || OpenDriver(kOwn, RegisterForkHandlers);
}

void* ResolveRow(void** target) {
  int row = RowOfTarget(target);
  if (!PrepareDriver()) return (void*)CalledWhileOpening;
  void* now = RowTarget(row);
  if (now) return now;
  ReportUnwrapped(RowSymbol(row), 0);
  return SkipLazyStub(row);
}
