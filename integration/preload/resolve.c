/* The first call through a slot, from trampolines.S: opens the real driver, with the shim's own wrappers in
 * place, and reports a must-hook that somebody calls while no wrapper is there. */

#include "integration/preload/shim.h"

static int CalledWhileOpening(void) { return kCudaNotInitialized; }

void* ResolveSlot(void** target) {
  static const struct OwnWrapper kOwn[] = {
      {"cuInit", (void*)WrappedInit},
      {"cuGetProcAddress", (void*)WrappedGetProcAddress},
      {"cuGetProcAddress_v2", (void*)WrappedGetProcAddressV2},
      {NULL, NULL},
  };
  int slot = SlotOfTarget(target);
  if (!DriverIsOpen() && !OpenDriver(kOwn, RegisterForkHandlers)) return (void*)CalledWhileOpening;
  void* now = SlotTarget(slot);
  if (now) return now;
  ReportUnwrapped(SlotSymbol(slot), 0);
  return SkipLazyStub(slot);
}
