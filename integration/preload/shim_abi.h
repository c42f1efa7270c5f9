/* The C ABI between the preload shim (libspillway.so) and the engine (libspillway_engine.so). The shim opens
 * the engine RTLD_LOCAL from its own directory, inside the first cuInit of the process that succeeds, and
 * calls spillway_engine_open(). No code of the engine runs before that. The shim owns the driver's names, the
 * choice of pointers and PyTorch's variables; it leaves every decision about memory to the engine. The engine
 * may call it on any thread. If the engine cannot be opened, the shim prints one line, and every call goes to
 * the driver. */

#ifndef SPILLWAY_INTEGRATION_PRELOAD_SHIM_ABI_H_
#define SPILLWAY_INTEGRATION_PRELOAD_SHIM_ABI_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SPILLWAY_SHIM_ABI_VERSION 3

/* Bits of spillway_shim.flags. */
/* The real libcuda was in the process before the shim, so calls bound to it are not seen. Eviction must stay
 * off. The shim has printed the line. */
#define SPILLWAY_SHIM_DRIVER_ALREADY_LOADED 1u

/* The functions and facts that the shim hands to the engine. The struct and all strings in it live as long as
 * the process. All functions may be called from any thread at any time, unless a comment says otherwise. */
struct spillway_shim {
  uint32_t abi_version; /* SPILLWAY_SHIM_ABI_VERSION */
  uint32_t flags;

  /* Returns the real driver's function of that symbol ("cuMemAlloc_v2"); NULL if this driver lacks it or
   * driver_functions.def does not name it. */
  void* (*real)(const char* symbol);

  /* Makes calls through that symbol go to `wrapper` from now on, even those through pointers that were handed
   * out before; NULL takes the wrapper away. Returns 0, or -1 if the symbol is unknown, absent from this
   * driver or one of the shim's own (cuInit, cuGetProcAddress, cuGetProcAddress_v2), or the process is a
   * forked child. A MUST row of driver_symbols.def without a wrapper counts as unwrapped at its first call.
   */
  int (*install)(const char* symbol, void* wrapper);

  /* Returns the user's setting of that name, NULL if there is none. `name` is the variable without its prefix
   * in small letters ("gpu_memory" for SPILLWAY_GPU_MEMORY; "spillway" for SPILLWAY itself). A variable wins
   * over the same key in PyTorch's variables, the key over the user's file, and that file over the system's.
   * All are as they were when the process first used CUDA. Brackets around a list in PyTorch's variables are
   * removed. */
  const char* (*setting)(const char* name);

  /* Returns the origin of setting(name), for messages: "SPILLWAY_GPU_MEMORY", "gpu_memory in
   * PYTORCH_CUDA_ALLOC_CONF" or "/etc/spillway.conf:3: gpu_memory"; NULL if there is none. */
  const char* (*setting_source)(const char* name);

  /* Return the operator's limit of that setting, from the system's file, and its origin; NULL if there is
   * none. */
  const char* (*limit)(const char* name);
  const char* (*limit_source)(const char* name);

  /* The file of the real driver, and the directory of the shim (no slash at the end). */
  const char* driver_path;
  const char* library_directory;

  /* Writes the name of the first must-hook that somebody got, or called, unwrapped. Returns the CUDA version
   * that was asked for (0 if it was called by symbol), or -1 if there was none so far. */
  int (*first_unwrapped)(char* name, size_t bytes);

  /* Sets a callback for each unwrapped must-hook from now on. It runs on the thread that asks or calls,
   * before that goes on, outside all locks of the shim. Each name is reported once. */
  void (*set_unwrapped_callback)(void (*callback)(const char* name, int version));

  /* Sets a callback that is asked from now on at a call of a function that no table names. It runs on the
   * calling thread, before the call goes on, outside all locks of the shim, and returns one of
   * SPILLWAY_NEWER_*. */
  void (*set_newer_callback)(int (*callback)(const char* name));

  /* Returns the number of calls of such functions so far, refused ones included. */
  uint64_t (*newer_calls)(void);
};

/* Answers of the callback for functions that no table names. */
#define SPILLWAY_NEWER_CALL 0        /* this call goes on; the next one asks again */
#define SPILLWAY_NEWER_CALL_ALWAYS 1 /* calls of this function go on from now on */
#define SPILLWAY_NEWER_REFUSE 2      /* this call is not made and returns CUDA_ERROR_OUT_OF_MEMORY */

/* Functions that the shim looks up in the engine. */

/* Required. Called once per process, in the first successful cuInit, on that thread; other threads' cuInit
 * waits for it. Installs the wrappers. Returns 0 if the engine is open; after anything else the shim prints
 * one line and passes everything through. Calls that it makes through driver symbols reach the real driver's
 * cuInit directly. */
int spillway_engine_open(const struct spillway_shim* shim);

/* Optional. Called after each later cuInit of the process that succeeds, and when a module of Python's is
 * opened after PyTorch's: PyTorch may be in the process now. */
void spillway_engine_cu_init(void);

/* Optional. Called in a forked child, on its only thread, after the shim has put the real functions back. */
void spillway_engine_fork_child(void);

#ifdef __cplusplus
}
#endif

#endif /* SPILLWAY_INTEGRATION_PRELOAD_SHIM_ABI_H_ */
