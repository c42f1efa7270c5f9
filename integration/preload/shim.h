/* The interface between the files of the preload (libspillway.so, the shim). It is C, with no dependency but
 * libc. No code of it runs before the first call of a driver function, or the first dlopen that the filter in
 * dlopen_hook.c takes up. Any thread of the job may come in, even one that holds the loader's lock. All names
 * are hidden; the exported ones are in trampolines.S and version.c. The files are listed here in their order:
 * each calls only files above its own, and gets as an argument what it needs of a later one
 * (tests/checks/preload_calls.py). trampolines.S, which has the jump table, calls resolve.c and
 * dlopen_hook.c; newer_stubs.S calls newer.c. */

#ifndef SPILLWAY_INTEGRATION_PRELOAD_SHIM_H_
#define SPILLWAY_INTEGRATION_PRELOAD_SHIM_H_

#include <stddef.h>
#include <stdint.h>

#include "integration/preload/conf_text.h" /* PyTorch's variables; the command line uses it, too */
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

/* --- log.c ---------------------------------------------------------------------------------------------- */

/* Writes one line to standard error: "spillway: <parts>". The parts end with NULL. */
void LogLine(const char* part, ...) __attribute__((sentinel));
/* Like LogLine, for a message that ends the job; also works after SilenceLog. */
void LogFatal(const char* part, ...) __attribute__((sentinel));
/* Makes LogLine write nothing from now on (log=off). */
void SilenceLog(void);

/* --- real_dlopen.c -------------------------------------------------------------------------------------- */

/* glibc's dlopen (or that of the next library in line), not the hook. The first returns its address, the
 * second calls it. */
void* DlopenTarget(void);
void* RealDlopen(const char* path, int mode);

/* --- start_lock.c --------------------------------------------------------------------------------------- */

/* Serializes what is done once: filling the table and opening the engine. Fork waits for it. Not recursive.
 * The caller may hold the loader's lock, so no code under this lock waits for the loader, except the engine
 * while it opens. */
void LockStart(void);
void UnlockStart(void);
/* Returns 1 on the thread that has locked it. */
int HasLockedStart(void);
/* Called around a fork. The engine may fork while it opens, on the thread that has locked: its child has the
 * lock, too. */
void LockStartForFork(void);
void UnlockStartAfterFork(void);

/* --- conf.c: settings, files of them, PyTorch's variables ----------------------------------------------- */

/* Takes our keys out of PyTorch's variables and remembers them. May be called again, since the job may have
 * set the variables anew. A slip (conf_check.c) ends the process, unless SPILLWAY is off. */
void TakeConf(void);
void LockConf(void);
void UnlockConf(void);
/* Fixes the SPILLWAY_ variables as they are now. Called once, before the engine opens. */
void TakeVariables(void);
/* As in spillway_shim (shim_abi.h). */
const char* Setting(const char* name);
const char* SettingSource(const char* name);
const char* SettingLimit(const char* name);
const char* SettingLimitSource(const char* name);
/* Like Setting, but of the environment alone, which has what the job sets for itself; files apply to all
 * jobs. */
const char* OwnSetting(const char* name);
/* Ends the process, with a line, if something is wrong with a file of settings, unless SPILLWAY is off. */
void RefuseConfFiles(void);
/* Returns 1 if SPILLWAY is off. */
int SwitchedOff(void);
/* Returns 1 if the user wants the job to end rather than run without Spillway. */
int Required(void);

/* --- not_served.c: the end of a job that requires Spillway ---------------------------------------------- */

/* Prints why this process runs without Spillway: "spillway: <what><why>" and what follows from it. If
 * Required(), does not return: it ends the process with exit status 2. Any thread may call it, with any lock
 * held. */
void NotServed(const char* what, const char* why, const char* consequence);

/* --- function_table.c: the one table that every call goes through --------------------------------------- */

int RowCount(void);
/* Returns the row of that symbol, -1 if there is none. */
int FindRow(const char* symbol);
const char* RowSymbol(int row);
enum RowUse RowUseOf(int row);
/* Returns the exported function of the row, which callers get in place of the real one. */
void* RowTrampoline(int row);
/* Returns the real function; NULL before FillRows and if the driver lacks it. */
void* RowReal(int row);
/* One request to cuGetProcAddress. */
struct Request {
  const char* base;
  int version;
  int per_thread;
};
/* Returns the row whose real function is at `address`; if there are several, one that is hooked. -1: none. */
int RowAtReal(const void* address);
/* Like RowAtReal; if there are several, returns the one that fits the request best. */
int FindRowOfReal(const void* address, const struct Request* request);
/* Returns the row that driver_functions.def gives for the request; with `only_real`, among those that this
 * driver has. -1: none. */
int FindRowOfRequest(const struct Request* request, int only_real);
/* Returns 1 if a row has that name for cuGetProcAddress, or if the name is empty. */
int IsKnownBase(const char* base);
/* Returns 1 if a HOOK or MUST row has that name. */
int IsHookedBase(const char* base);
/* Looks every symbol up in the driver (NULL: no driver). `real` has RowCount() places. Takes the loader's
 * lock. */
void LookUpRows(void* driver, void** real);
/* A wrapper of the shim itself, which the engine cannot replace. */
struct OwnWrapper {
  const char* symbol; /* NULL ends a list of them */
  void* function;
};
/* Points every row at its real function, and the rows in `own` at their wrappers. Called once, under
 * LockStart. */
void FillRows(void* const* real, int has_driver, const struct OwnWrapper* own);
/* Reports the first call through each MUST row without a wrapper from now on. */
void WatchUnwrappedRows(void);
/* See spillway_shim.install. */
int InstallWrapper(const char* symbol, void* wrapper);
/* Takes all wrappers of the engine away for good: in a forked child, or if the engine did not open. */
void RemoveWrappers(void);
/* Returns the row of a place in the jump table. */
int RowOfTarget(void** target);
/* Returns the current target of the row's calls; NULL while that is still the lazy stub. Called after
 * FillRows. */
void* RowTarget(int row);
/* Lets calls of a lazy row go to the real function from now on. Returns their target, which is a wrapper if
 * one has been installed meanwhile. */
void* SkipLazyStub(int row);

/* --- unwrapped.c: must-hooks without a wrapper ------------------------------------------------------------ */

/* Records that the job got a must-hook without a wrapper (`version`: as asked for), or called one (0). Each
 * name is recorded once. */
void ReportUnwrapped(const char* name, int version);
/* Both are as in spillway_shim. */
int FirstUnwrapped(char* name, size_t bytes);
void SetUnwrappedCallback(void (*callback)(const char* name, int version));

/* --- newer.c: functions that no table names ------------------------------------------------------------- */

/* Returns a stub that counts its calls and stands for the driver's function `real`: the same stub for the
 * same function. NULL if there are no more. `name` and `version` are as asked for. `lasting`: the effect of a
 * call may last, so the function's name counts as unwrapped from the first call on, whenever that is.
 * Thread-safe; takes no lock. */
void* NewerStub(void* real, const char* name, int version, int lasting);
/* Both are as in spillway_shim. */
void SetNewerCallback(int (*callback)(const char* name));
uint64_t NewerCalls(void);
/* Lets calls go to the real functions from now on, without asking the engine. */
void StopAskingForNewer(void);

/* --- routing.c: cuGetProcAddress ------------------------------------------------------------------------ */

/* The shim's wrappers of both forms. */
int WrappedGetProcAddress(const char* name, void** pointer, int version, uint64_t flags);
int WrappedGetProcAddressV2(const char* name, void** pointer, int version, uint64_t flags, void* status);
/* --- driver_search.c: the places where ld.so would look ----------------------------------------------------
 */

/* Calls `visit` for each existing file that could be the driver, in order, until it returns 1. Returns 1 if
 * it did, 0 otherwise. */
int VisitDriverCandidates(const char* hint, int (*visit)(const char* path));

/* --- driver.c: the real driver -------------------------------------------------------------------------- */

/* Opens the real driver if that has not been done. Returns 1 if calls can go on, 0 if this thread is already
 * opening it. The first thread that is ready gives `own` to FillRows and then calls `opened`, under
 * LockStart. */
int OpenDriver(const struct OwnWrapper* own, void (*opened)(void));
/* Returns 1 once the rows are filled. */
int DriverIsOpen(void);
/* Returns the path of the real driver, NULL if there is none. */
const char* DriverPath(void);
/* Returns 1 if a driver was in the process before this library, so that calls bound to it are not seen. */
int DriverWasAlreadyLoaded(void);
/* Records that they are seen now. */
void RecordDriverRebound(void);
/* Remembers a path by which the job asked for the driver. It is tried if the usual places have none. */
void RememberDriverHint(const char* path);
/* Returns the directory of libspillway.so, without a slash at the end. */
const char* ShimDirectory(void);

/* --- start.c: cuInit, the engine, fork ------------------------------------------------------------------ */

/* The shim's wrapper of cuInit: opens the engine after the first one that succeeds. */
int WrappedInit(unsigned int flags);
/* Has the engine look for PyTorch, which may be there by now: no cuInit follows if it shares a CUDA runtime
 * that another library has started. */
void FindTorch(void);
/* Makes fork wait for LockStart and LockConf, and puts the real functions back in the child. Called once,
 * under LockStart. */
void RegisterForkHandlers(void);

/* --- resolve.c: the first call through a row ------------------------------------------------------------ */

/* Opens the driver, if that has not been done. Returns 0 if this thread is already opening it. */
int PrepareDriver(void);
/* Called from trampolines.S. Opens the driver, and returns the function to jump to. */
void* ResolveRow(void** target);

/* --- rebind.c: a driver that was there before --------------------------------------------------------------- */

/* Makes calls of a driver that was in the process before this library go through the function table: calls by
 * pointers in the data of loaded libraries, and by later look-ups. Returns the number of pointers that were
 * rewritten; 0 also if there was no such driver. Returns -1 if it cannot be done: `why` gives the reason, and
 * nothing has been changed unless memory could not be written. Must run on one thread, while no other opens
 * libraries. */
long RebindDriver(char* why, size_t bytes);

/* --- dlopen_hook.c: what the dlopen hook opens instead -------------------------------------------------- */

/* Called from trampolines.S. Returns the path to open for `path`. */
const char* DlopenName(const char* path);
/* Called from trampolines.S. Returns glibc's dlmopen, for `path`. Prints one line if that is the driver,
 * whose calls bypass us then: a namespace of its own has no preload. */
void* DlmopenTarget(const char* path);

#endif /* SPILLWAY_INTEGRATION_PRELOAD_SHIM_H_ */
