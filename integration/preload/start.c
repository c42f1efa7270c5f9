/* cuInit and fork. The engine is opened after the first cuInit of the process that succeeds. In a forked
   child the engine is dead, and calls go to the real driver. */

#include "integration/preload/shim.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

static const char kEngineName[] = "libspillway_engine.so";
static const char kWithout[] = "; CUDA is used as without Spillway";

static __thread int inside_; /* this thread is inside our cuInit: the engine or the driver calls it again */

enum EngineState { kEngineNotOpened = 0, kEngineOpen, kEngineRefused };
static atomic_int engine_;            /* enum EngineState; changes under LockStart */
static void (*engine_cu_init_)(void); /* these two are written before engine_ */
static void (*engine_fork_child_)(void);
static struct spillway_shim shim_; /* written before engine_, too */

static void BeforeFork(void) {
  LockStartForFork();
  LockConf();
}

static void AfterForkInParent(void) {
  UnlockConf();
  UnlockStartAfterFork();
}

static void AfterForkInChild(void) {
  AfterForkInParent();
  if (atomic_load(&engine_) == kEngineNotOpened && !HasLockedStart())
    return; /* the child may start its own */
  atomic_store(&engine_, kEngineRefused);
  RemoveWrappers();
  StopAskingForNewer();
  if (engine_fork_child_) engine_fork_child_();
}

void RegisterForkHandlers(void) { pthread_atfork(BeforeFork, AfterForkInParent, AfterForkInChild); }

static void* RealFunction(const char* symbol) {
  int row = FindRow(symbol);
  return row >= 0 ? RowReal(row) : NULL;
}

static void FillShim(void) {
  shim_.abi_version = SPILLWAY_SHIM_ABI_VERSION;
  shim_.flags = DriverWasAlreadyLoaded() ? SPILLWAY_SHIM_DRIVER_ALREADY_LOADED : 0;
  shim_.real = RealFunction;
  shim_.install = InstallWrapper;
  shim_.setting = Setting;
  shim_.setting_source = SettingSource;
  shim_.limit = SettingLimit;
  shim_.limit_source = SettingLimitSource;
  shim_.driver_path = DriverPath();
  shim_.library_directory = ShimDirectory();
  shim_.first_unwrapped = FirstUnwrapped;
  shim_.set_unwrapped_callback = SetUnwrappedCallback;
  shim_.set_newer_callback = SetNewerCallback;
  shim_.newer_calls = NewerCalls;
}

/* Returns whether this is Windows' kernel for Linux, whose driver is another: refused before any code of the
   engine runs. */
static int IsWsl(void) {
  struct utsname machine;
  if (uname(&machine) != 0) return 0;
  return strstr(machine.release, "microsoft") || strstr(machine.release, "Microsoft");
}

/* The engine lies beside the shim. If the shim is a link, a file beside its target will do. */
static void* OpenEngineFile(void) {
  char path[PATH_MAX + 64], link[PATH_MAX + 64], target[PATH_MAX];
  if (IsWsl()) {
    NotServed("WSL is not supported, only Linux with NVIDIA's own driver", "", kWithout);
    return NULL;
  }
  snprintf(path, sizeof(path), "%s/%s", ShimDirectory(), kEngineName);
  snprintf(link, sizeof(link), "%s/libspillway.so", ShimDirectory());
  if (access(path, R_OK) != 0 && realpath(link, target)) {
    char* slash = strrchr(target, '/');
    if (slash) snprintf(path, sizeof(path), "%.*s/%s", (int)(slash - target), target, kEngineName);
  }
  void* engine = RealDlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!engine) {
    const char* why = dlerror();
    NotServed("cannot open the engine: ", why ? why : path, kWithout);
  }
  return engine;
}

/* The functions that one thread found in the engine's file. */
struct EngineFile {
  int (*open)(const struct spillway_shim*);
  void (*cu_init)(void);
  void (*fork_child)(void);
};

static struct EngineFile LookIntoEngine(void* engine) {
  struct EngineFile file = {NULL, NULL, NULL};
  if (!engine) return file;
  file.open = (int (*)(const struct spillway_shim*))dlsym(engine, "spillway_engine_open");
  file.cu_init = (void (*)(void))dlsym(engine, "spillway_engine_cu_init");
  file.fork_child = (void (*)(void))dlsym(engine, "spillway_engine_fork_child");
  if (!file.open) NotServed(kEngineName, " lacks spillway_engine_open", kWithout);
  return file;
}

/* Called under LockStart. Returns the new state. */
static enum EngineState OpenEngine(const struct EngineFile* file) {
  if (!file->open) return kEngineRefused;
  FillShim();
  engine_cu_init_ = file->cu_init;
  engine_fork_child_ = file->fork_child;
  if (file->open(&shim_) != 0) {
    NotServed("the engine did not start", "", kWithout);
    engine_fork_child_ = NULL;
    return kEngineRefused;
  }
  return kEngineOpen;
}

/* Returns 1 if this call opened the engine, or found that there will be none. */
static int StartEngine(void) {
  if (atomic_load(&engine_) != kEngineNotOpened) return 0;
  /* This comes before the lock: opening a file needs the loader's lock, which a thread that waits for ours
     may hold. */
  TakeVariables();
  RefuseConfFiles();
  if (DriverWasAlreadyLoaded() && !SwitchedOff()) {
    NotServed(DriverPath(), " was loaded before libspillway.so: its calls are not seen", ", eviction is off");
  }
  struct EngineFile file = LookIntoEngine(SwitchedOff() ? NULL : OpenEngineFile());
  LockStart();
  int first = atomic_load(&engine_) == kEngineNotOpened;
  if (first) {
    enum EngineState state = OpenEngine(&file);
    if (state == kEngineOpen) {
      WatchUnwrappedRows();
    } else {
      RemoveWrappers();
      StopAskingForNewer();
    }
    atomic_store(&engine_, state);
  }
  UnlockStart();
  return first;
}

void FindTorch(void) {
  if (inside_ || atomic_load(&engine_) != kEngineOpen || !engine_cu_init_) return;
  inside_ = 1;
  engine_cu_init_();
  inside_ = 0;
}

int WrappedInit(unsigned int flags) {
  int (*real)(unsigned int) = (int (*)(unsigned int))RealFunction("cuInit");
  if (!real) return kCudaNoDevice;
  if (inside_) return real(flags);
  inside_ = 1;
  if (atomic_load(&engine_) == kEngineNotOpened) TakeConf();
  int result = real(flags);
  if (result == kCudaSuccess && !StartEngine() && atomic_load(&engine_) == kEngineOpen && engine_cu_init_) {
    engine_cu_init_();
  }
  inside_ = 0;
  return result;
}
