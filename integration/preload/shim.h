/* The inside of the preload shim: what its files share. No dependency but libc; no C++; nothing runs before
 * the first call of a driver function, or the first dlopen that the filter in dlopen_hook.c cares about. All
 * names are hidden: the exported ones are in trampolines.S and version.c. The files stand here in their
 * order: each calls only files above its own, and what it needs of a later one it is given
 * (tests/checks/preload_calls.py). trampolines.S, which has the jump table, calls resolve.c and
 * dlopen_hook.c. */

#ifndef SPILLWAY_INTEGRATION_PRELOAD_SHIM_H_
#define SPILLWAY_INTEGRATION_PRELOAD_SHIM_H_

#include <stddef.h>
#include <stdint.h>

#include "integration/preload/shim_abi.h"

/* The few CUresult values that the shim itself returns. */
enum {
  kCudaSuccess = 0,
  kCudaInvalidValue = 1,
  kCudaNotInitialized = 3,
  kCudaNoDevice = 100,
  kCudaNotFound = 500,
  kCudaNotSupported = 801,
};

/* One driver symbol of driver_functions.def is one slot; slots are numbered as the table is sorted. */
enum SlotUse { kUseNone = 0, kUseUsed, kUseHook, kUseMust };

/* --- say.c ---------------------------------------------------------------------------------------------- */

/* One line on standard error: "spillway: <parts>". The parts end with NULL. */
void Say(const char* part, ...) __attribute__((sentinel));

/* --- real_dlopen.c -------------------------------------------------------------------------------------- */

/* glibc's dlopen (or that of the next library in line), not the hook; as an address, and called. */
void* DlopenTarget(void);
void* RealDlopen(const char* path, int mode);

/* --- start_lock.c --------------------------------------------------------------------------------------- */

/* Serialises what happens once: filling the slots and opening the engine. Fork waits for it. Not recursive.
 * The loader's lock may be held by the caller, so nothing under it waits for the loader but the engine's own
 * opening. */
void LockStart(void);
void UnlockStart(void);
/* 1 on the thread that holds it. */
int HoldsStart(void);
/* Around a fork. The engine may fork while it opens, on the thread that holds the lock: its child has it
 * already. */
void LockStartForFork(void);
void UnlockStartAfterFork(void);

/* --- conf.c: settings, and PyTorch's variables ---------------------------------------------------------- */

/* Takes our keys out of PyTorch's variables and remembers them. May be called again: the variables may have
 * been set anew in the meantime. */
void TakeConf(void);
void LockConf(void);
void UnlockConf(void);
/* Fixes the SPILLWAY_ variables as they are now. Once, before the engine opens. */
void TakeVariables(void);
const char* Setting(const char* name);
const char* SettingSource(const char* name);
int SwitchedOff(void);

/* --- slots.c: the one table that every call goes through ------------------------------------------------ */

int SlotCount(void);
/* The slot of that symbol, -1 where there is none. */
int FindSlot(const char* symbol);
const char* SlotSymbol(int slot);
enum SlotUse SlotUseOf(int slot);
/* The exported function of the slot: what others are given in place of the real one. */
void* SlotTrampoline(int slot);
/* The real function, NULL before FillSlots and where the driver lacks it. */
void* SlotReal(int slot);
/* What cuGetProcAddress is asked for. */
struct Request {
  const char* base;
  int version;
  int per_thread;
};
/* The slot whose real function is at `address`; of several, the one that fits the request best. -1 for none.
 * */
int FindSlotOfReal(const void* address, const struct Request* request);
/* The slot that driver_functions.def gives for the request, with `only_real` among those that this driver
 * has. -1. */
int FindSlotOfRequest(const struct Request* request, int only_real);
/* 1 when a row has that name for cuGetProcAddress, or when it is empty. */
int IsKnownBase(const char* base);
/* 1 when a MUST row has it. */
int IsMustBase(const char* base);
/* Looks every symbol up in the driver (NULL: no driver); `real` has SlotCount() places. Takes the loader's
 * lock. */
void LookUpSlots(void* driver, void** real);
/* A wrapper of the shim itself, which the engine cannot replace. */
struct OwnWrapper {
  const char* symbol; /* NULL ends a list of them */
  void* function;
};
/* Points every slot at its real function, those in `own` at the wrappers. Once, under LockStart. */
void FillSlots(void* const* real, int has_driver, const struct OwnWrapper* own);
/* From now on the first call through a MUST slot without wrapper is reported. */
void WatchUnwrappedSlots(void);
/* See spillway_shim.install. */
int InstallWrapper(const char* symbol, void* wrapper);
/* Takes all wrappers of the engine away, for good (forked child, or an engine that did not open). */
void RemoveWrappers(void);
/* The slot of a place in the jump table. */
int SlotOfTarget(void** target);
/* Where calls of the slot go now, NULL while that is still the lazy stub. After FillSlots. */
void* SlotTarget(int slot);
/* Lets calls of a lazy slot go to the real function from now on. Where they go then: a wrapper may have come.
 * */
void* SkipLazyStub(int slot);

/* --- routing.c: cuGetProcAddress ------------------------------------------------------------------------ */

int WrappedGetProcAddress(const char* name, void** pointer, int version, uint64_t flags);
int WrappedGetProcAddressV2(const char* name, void** pointer, int version, uint64_t flags, void* status);
void ReportUnwrapped(const char* name, int version);
int FirstUnwrapped(char* name, size_t bytes);
void SetUnwrappedCallback(void (*callback)(const char* name, int version));

/* --- driver_search.c: where ld.so would look ------------------------------------------------------------ */

/* Calls `visit` for each existing file that could be the driver, in order, until it returns 1. Then 1, else
 * 0. */
int VisitDriverCandidates(const char* hint, int (*visit)(const char* path));

/* --- driver.c: the real driver -------------------------------------------------------------------------- */

/* Opens the real driver if that has not been done. 1: calls can go on; 0: this thread is just opening it. By
 * the first thread that gets there `own` is given to FillSlots, and then `opened` called, under LockStart. */
int OpenDriver(const struct OwnWrapper* own, void (*opened)(void));
/* 1 once the slots are filled. */
int DriverIsOpen(void);
/* The path of the real driver, NULL when there is none. */
const char* DriverPath(void);
int DriverWasAlreadyLoaded(void);
/* A path by which somebody asked for the driver: tried when the usual places have none. */
void RememberDriverHint(const char* path);
/* The directory of libspillway.so, without a slash at the end. */
const char* ShimDirectory(void);

/* --- start.c: cuInit, the engine, fork ------------------------------------------------------------------ */

int WrappedInit(unsigned int flags);
/* Makes fork wait for LockStart and LockConf, and puts the real functions back in the child. Under LockStart,
 * once. */
void RegisterForkHandlers(void);

/* --- resolve.c: the first call through a slot ----------------------------------------------------------- */

/* Called from trampolines.S: the function to jump to. Opens the driver. */
void* ResolveSlot(void** target);

/* --- dlopen_hook.c: what the dlopen hook opens instead -------------------------------------------------- */

/* Called from trampolines.S: the path to open for `path`. */
const char* DlopenName(const char* path);

#endif /* SPILLWAY_INTEGRATION_PRELOAD_SHIM_H_ */
