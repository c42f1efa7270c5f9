/* The interface between the files of the preload (libspillway.so, the shim). C, with no dependency but libc.
 * Nothing runs before the first call of a driver function, or the first dlopen that the filter in
 * dlopen_hook.c takes up. Any thread of the job may come in, also one that holds the loader's lock. All names
 * are hidden; the exported ones are in trampolines.S and version.c. The files stand here in their order: each
 * calls only files above its own, and gets as an argument what it needs of a later one
 * (tests/checks/preload_calls.py). trampolines.S, which has the jump table, calls resolve.c and
 * dlopen_hook.c; newer_stubs.S calls newer.c. */

#ifndef SPILLWAY_INTEGRATION_PRELOAD_SHIM_H_
#define SPILLWAY_INTEGRATION_PRELOAD_SHIM_H_

#include <stddef.h>
#include <stdint.h>

#include "integration/preload/conf_text.h" /* PyTorch's variables; the command line has it, too */
#include "integration/preload/shim_abi.h"

/* The few CUresult values that the shim itself returns. */
enum {
  kCudaSuccess = 0,
  kCudaInvalidValue = 1,
  kCudaOutOfMemory = 2,
  kCudaNotInitialized = 3,
  kCudaNoDevice = 100,
  kCudaNotFound = 500,
  kCudaNotSupported = 801,
};

/* The exit status of a process with wrong settings. */
enum { kExitBadSetting = 2 };

/* The function table has a row for each driver symbol of driver_functions.def, in the order of that file. */
enum RowUse { kUseNone = 0, kUseUsed, kUseHook, kUseMust };

/* --- say.c ---------------------------------------------------------------------------------------------- */

/* Writes one line to standard error: "spillway: <parts>". The parts end with NULL. */
void Say(const char* part, ...) __attribute__((sentinel));
/* The same for what ends the job: also after SilenceSay. */
void SayFatal(const char* part, ...) __attribute__((sentinel));
/* From now on Say writes nothing (log=off). */
void SilenceSay(void);

/* --- real_dlopen.c -------------------------------------------------------------------------------------- */

/* glibc's dlopen (or that of the next library in line), not the hook; as an address, and called. */
void* DlopenTarget(void);
void* RealDlopen(const char* path, int mode);

/* --- start_lock.c --------------------------------------------------------------------------------------- */

/* Serialises what is done once: filling the table and opening the engine. Fork waits for it. Not recursive.
 * The caller may hold the loader's lock. So nothing under this lock waits for the loader, except the engine
 * while it opens. */
void LockStart(void);
void UnlockStart(void);
/* 1 on the thread that has locked it. */
int HasLockedStart(void);
/* Around a fork. The engine may fork while it opens, on the thread that has locked: its child has the lock,
 * too. */
void LockStartForFork(void);
void UnlockStartAfterFork(void);

/* --- conf.c: settings, files of them, PyTorch's variables ----------------------------------------------- */

/* Takes our keys out of PyTorch's variables and remembers them. May be called again, since the job may have
 * set the variables anew. A slip (conf_check.c) ends the process, unless SPILLWAY says off. */
void TakeConf(void);
void LockConf(void);
void UnlockConf(void);
/* Fixes the SPILLWAY_ variables as they are now. Once, before the engine opens. */
void TakeVariables(void);
/* As in spillway_shim (shim_abi.h). */
const char* Setting(const char* name);
const char* SettingSource(const char* name);
const char* SettingLimit(const char* name);
const char* SettingLimitSource(const char* name);
/* The same as Setting, of the environment alone: what a job says of itself, not what files say of all jobs.
 * */
const char* OwnSetting(const char* name);
/* Ends the process, with a line, where something is wrong with a file of settings, unless SPILLWAY says off.
 * */
void RefuseConfFiles(void);
/* 1 when SPILLWAY says off. */
int SwitchedOff(void);
/* 1 when the user wants the job to end rather than to run without Spillway. */
int Required(void);

/* --- not_served.c: the end of a job that is to have Spillway -------------------------------------------- */

/* Says why this process runs without Spillway: "spillway: <what><why>" and what follows from it. Does not return
 * where Required(): it ends the process with exit status 2. Any thread, with any lock. */
void NotServed(const char* what, const char* why, const char* consequence);

/* --- function_table.c: the one table that every call goes through --------------------------------------- */

int RowCount(void);
/* The row of that symbol, -1 where there is none. */
int FindRow(const char* symbol);
const char* RowSymbol(int row);
enum RowUse RowUseOf(int row);
/* The exported function of the row, which others get in place of the real one. */
void* RowTrampoline(int row);
/* The real function, NULL before FillRows and where the driver lacks it. */
void* RowReal(int row);
/* What cuGetProcAddress is asked for. */
struct Request {
  const char* base;
  int version;
  int per_thread;
};
/* The row whose real function is at `address`; of several, one that is hooked. -1: none. */
int RowAtReal(const void* address);
/* The same; of several, the one that fits the request best. */
int FindRowOfReal(const void* address, const struct Request* request);
/* The row that driver_functions.def gives for the request, with `only_real` among those that this driver has.
 * -1: none. */
int FindRowOfRequest(const struct Request* request, int only_real);
/* 1 when a row has that name for cuGetProcAddress, or when the name is empty. */
int IsKnownBase(const char* base);
/* 1 when a HOOK or MUST row has that name. */
int IsHookedBase(const char* base);
/* Looks every symbol up in the driver (NULL: no driver). `real` has RowCount() places. Takes the loader's
 * lock. */
void LookUpRows(void* driver, void** real);
/* A wrapper of the shim itself, which the engine cannot replace. */
struct OwnWrapper {
  const char* symbol; /* NULL ends a list of them */
  void* function;
};
/* Points every row at its real function, those in `own` at the wrappers. Once, under LockStart. */
void FillRows(void* const* real, int has_driver, const struct OwnWrapper* own);
/* From now on the first call through a MUST row without wrapper is reported. */
void WatchUnwrappedRows(void);
/* See spillway_shim.install. */
int InstallWrapper(const char* symbol, void* wrapper);
/* Takes all wrappers of the engine away for good: in a forked child, or when the engine did not open. */
void RemoveWrappers(void);
/* The row of a place in the jump table. */
int RowOfTarget(void** target);
/* Where calls of the row go now; NULL while that is still the lazy stub. After FillRows. */
void* RowTarget(int row);
/* Lets calls of a lazy row go to the real function from now on. Returns where they go: a wrapper may have
 * come. */
void* SkipLazyStub(int row);

/* --- unwrapped.c: must-hooks without a wrapper ------------------------------------------------------------ */

/* Records that the job got a must-hook without a wrapper (`version`: as asked for), or called one (0). Each name
 * once. */
void ReportUnwrapped(const char* name, int version);
/* Both as in spillway_shim. */
int FirstUnwrapped(char* name, size_t bytes);
void SetUnwrappedCallback(void (*callback)(const char* name, int version));

/* --- newer.c: functions that no table names ------------------------------------------------------------- */

/* A stub that counts its calls and stands for the driver's function `real`: the same one for the same function.
 * NULL when there are no more. `name` and `version`: as asked for. `lasting`: what a call does may last, so its
 * name counts as unwrapped from the first call on, whenever that is. Any thread; takes no lock. */
void* NewerStub(void* real, const char* name, int version, int lasting);
/* Both as in spillway_shim. */
void SetNewerCallback(int (*callback)(const char* name));
uint64_t NewerCalls(void);
/* From now on calls go to the real functions, and nobody is asked. */
void StopAskingForNewer(void);

/* --- routing.c: cuGetProcAddress ------------------------------------------------------------------------ */

/* The shim's wrappers of both forms. */
int WrappedGetProcAddress(const char* name, void** pointer, int version, uint64_t flags);
int WrappedGetProcAddressV2(const char* name, void** pointer, int version, uint64_t flags, void* status);
/* --- driver_search.c: where ld.so would look ------------------------------------------------------------ */

/* Calls `visit` for each existing file that could be the driver, in order, until it returns 1. Returns 1
 * then, else 0. */
int VisitDriverCandidates(const char* hint, int (*visit)(const char* path));

/* --- driver.c: the real driver -------------------------------------------------------------------------- */

/* Opens the real driver if that has not been done. 1: calls can go on. 0: this thread is just opening it. The
 * first thread that is ready gives `own` to FillRows and then calls `opened`, under LockStart. */
int OpenDriver(const struct OwnWrapper* own, void (*opened)(void));
/* 1 once the rows are filled. */
int DriverIsOpen(void);
/* The path of the real driver, NULL when there is none. */
const char* DriverPath(void);
/* 1 when a driver was in the process before this library, so that calls bound to it are not seen. */
int DriverWasAlreadyLoaded(void);
/* They are seen now. */
void NoteDriverRebound(void);
/* Remembers a path by which the job asked for the driver. It is tried when the usual places have none. */
void RememberDriverHint(const char* path);
/* The directory of libspillway.so, without a slash at the end. */
const char* ShimDirectory(void);

/* --- start.c: cuInit, the engine, fork ------------------------------------------------------------------ */

/* The shim's wrapper of cuInit: opens the engine after the first one that succeeds. */
int WrappedInit(unsigned int flags);
/* PyTorch may be there by now: where it shares a CUDA runtime that another library has started, no cuInit follows. */
void LookForTorch(void);
/* Makes fork wait for LockStart and LockConf, and puts the real functions back in the child. Once, under
 * LockStart. */
void RegisterForkHandlers(void);

/* --- resolve.c: the first call through a row ------------------------------------------------------------ */

/* Opens the driver, if that has not been done. 0: this thread is just opening it. */
int PrepareDriver(void);
/* Called from trampolines.S: the function to jump to. Opens the driver. */
void* ResolveRow(void** target);

/* --- rebind.c: a driver that was there before --------------------------------------------------------------- */

/* Makes calls of a driver that was in the process before this library go through the function table: those by
 * pointers in the data of loaded libraries, and by later look-ups. How many pointers were rewritten; 0 as well
 * where there was no such driver. -1: it cannot be done, `why` says why, and nothing has been changed unless
 * memory could not be written. On one thread, while no other opens libraries. */
long RebindDriver(char* why, size_t bytes);

/* --- dlopen_hook.c: what the dlopen hook opens instead -------------------------------------------------- */

/* Called from trampolines.S: the path to open for `path`. */
const char* DlopenName(const char* path);
/* Likewise: glibc's dlmopen, for `path`. One line where that is the driver, whose calls then go around us: a
 * namespace of its own has no preload. */
void* DlmopenTarget(const char* path);

#endif /* SPILLWAY_INTEGRATION_PRELOAD_SHIM_H_ */
