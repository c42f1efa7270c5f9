/* The program that the shim's tests run: each command reaches driver functions in one way and prints what they
 * returned, one word per line. Built twice: as it is, and linked to a driver (PROBE_LINKED). */

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/preload/probe.h"

static int OpenCommand(const char* name) {
  void* library = Open(name);
  Print("init", CallInit(library));
  Print("launch", Call(library, "cuLaunchKernel"));
  Print("launch_ptsz", Call(library, "cuLaunchKernel_ptsz"));
  return 0;
}

static int CallAll(int count, char** names) {
  void* library = Open("libcuda.so.1");
  Print("init", CallInit(library));
  for (int i = 0; i < count; ++i) Print(names[i], Call(library, names[i]));
  return 0;
}

/* Everything through cuGetProcAddress, which itself comes from `via` (one of its two forms), found by asking it for
 * itself once more. */
static int GetProcCommand(const char* via) {
  void* library = Open("libcuda.so.1");
  void *self = NULL, *init = NULL;
  int result;
  int second = strcmp(via, "v2") == 0;
  if (second) {
    int status = -1;
    result = ((GetProc2)Symbol(library, "cuGetProcAddress_v2"))("cuGetProcAddress", &self, 12000, 0, &status);
    Print("status", status);
    Print("status_may_be_null", ((GetProc2)self)("cuInit", &init, 12000, 0, NULL));
  } else {
    result = ((GetProc)Symbol(library, "cuGetProcAddress"))("cuGetProcAddress", &self, 11030, 0);
    Print("second", ((GetProc)self)("cuInit", &init, 11030, 0));
  }
  Print("self", result);
  Print("init", ((Init)init)(0));
  GetProc get =
      (GetProc)self; /* the fifth argument of the second form is left to chance in the calls below */
  if (second)
    self = NULL,
    result = ((GetProc2)Symbol(library, "cuGetProcAddress_v2"))("cuGetProcAddress", &self, 11030, 0, NULL);
  if (second) get = (GetProc)self; /* asked for as 11030, even the second form gives the first */
  Ask(get, "cuLaunchKernel", 12000, 0);
  Ask(get, "cuLaunchKernel", 12000, 2);
  Ask(get, "cuMemcpyBatchAsync", 12080, 0);
  Ask(get, "cuMemcpyBatchAsync", 13000, 0);
  Ask(get, "cuMemAlloc", 13000, 0);
  Ask(get, "cuDeviceGetName", 13000, 0);
  Ask(get, "cuMemsetD8Async", 13000, 0);
  Ask(get, "cuMemsetD8Async", 13000, 2);
  Ask(get, "cuMemsetD16Async", 13000, 0);
  Ask(get, "cuMemsetD32", 13000, 0);
  Ask(get, "cuNoSuchName", 13000, 0);
  Ask(get, "", 13000, 0);
  return 0;
}

static int FutureCommand(void) {
  void* library = Open("libcuda.so.1");
  GetProc get = (GetProc)Symbol(library, "cuGetProcAddress");
  Print("init", CallInit(library));
  Ask(get, "cuFunctionOfTheFuture", 99000, 0);
  Ask(get, "cuLaunchKernel", 99000, 0);
  Ask(get, "cuLaunchKernel", 99000, 0);
  return 0;
}

/* Both forms of cuGetProcAddress, for what is not there and for what is asked for wrongly. */
static int LookUpsCommand(void) {
  static const struct {
    const char* name;
    int version;
    uint64_t flags;
  } kCases[] = {{"cuInit", 12000, 0},           {"cuNoSuchName", 13000, 0}, {"", 13000, 0},
                {"cuLaunchKernelEx", 11000, 0}, {"cuInit", 12000, 4},       {NULL, 12000, 0}};
  void* library = Open("libcuda.so.1");
  GetProc first = (GetProc)Symbol(library, "cuGetProcAddress");
  GetProc2 second = (GetProc2)Symbol(library, "cuGetProcAddress_v2");
  for (size_t i = 0; i < sizeof(kCases) / sizeof(kCases[0]); ++i) {
    void *one = &first, *two = &first;
    int status = -1;
    int result = first(kCases[i].name, &one, kCases[i].version, kCases[i].flags);
    printf("%d %s; ", result, one == &first ? "untouched" : one ? "there" : "null");
    result = second(kCases[i].name, &two, kCases[i].version, kCases[i].flags, &status);
    printf("%d %s %d\n", result, two == &first ? "untouched" : two ? "there" : "null", status);
  }
  return 0;
}

static int LateCommand(void) {
  void* library = Open("libcuda.so.1");
  Function by_symbol = (Function)Symbol(library, "cuLaunchKernel");
  void* by_name = NULL;
  ((GetProc)Symbol(library, "cuGetProcAddress"))("cuLaunchKernel", &by_name, 12000, 0);
  Print("before", by_symbol());
  Print("before_by_name", ((Function)by_name)());
  Print("init", CallInit(library));
  Print("between", by_symbol());
  Print("init", CallInit(library));
  Print("after", by_symbol());
  Print("after_by_name", ((Function)by_name)());
  return 0;
}

static void* InitThread(void* library) {
  Init init = (Init)Symbol(library, "cuInit");
  intptr_t result = init(0);
  intptr_t launch = Call(library, "cuLaunchKernel"); /* must be wrapped in both: the engine is open by now */
  return (void*)(result * 100000 + launch);
}

static int RaceCommand(void) {
  enum { kThreads = 8 };
  pthread_t threads[kThreads];
  void* library = Open("libcuda.so.1");
  for (int i = 0; i < kThreads; ++i) pthread_create(&threads[i], NULL, InitThread, library);
  for (int i = 0; i < kThreads; ++i) {
    void* result;
    pthread_join(threads[i], &result);
    Print("thread", (int)(intptr_t)result);
  }
  return 0;
}

static void* PluginThread(void* path) {
  void* library = Open(path);
  return (void*)(intptr_t)Call(library, "PluginMain");
}

/* One thread's cuInit comes from a constructor, inside dlopen; the other's from a plain call. */
static int ConstructorRaceCommand(const char* path) {
  pthread_t first, second;
  void *from_constructor, *from_call, *library = Open("libcuda.so.1");
  pthread_create(&first, NULL, PluginThread, (void*)(uintptr_t)path);
  pthread_create(&second, NULL, InitThread, library);
  pthread_join(first, &from_constructor);
  pthread_join(second, &from_call);
  Print("constructor", (int)(intptr_t)from_constructor);
  Print("call", (int)(intptr_t)from_call);
  return 0;
}

static int ForkCommand(const char* when) {
  void* library = Open("libcuda.so.1");
  if (strcmp(when, "after") == 0) {
    Print("init", CallInit(library));
    Print("launch", Call(library, "cuLaunchKernel"));
  } else if (strcmp(when, "between") == 0) {
    int version;
    ((int (*)(int*))Symbol(library, "cuDriverGetVersion"))(
        &version); /* the driver is open, the engine is not */
  }
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    Print("child_init", CallInit(library));
    Print("child_launch", Call(library, "cuLaunchKernel"));
    Print("child_ptsz", Call(library, "cuLaunchKernel_ptsz"));
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  Print("child_status", status);
  Print("parent_init", CallInit(library));
  Print("parent_launch", Call(library, "cuLaunchKernel"));
  return 0;
}

static int ArgumentsCommand(void) {
  typedef int (*Many)(long, float, long, double, long, long, long, long, double, long);
  void* library = Open("libcuda.so.1");
  Many many = (Many)Symbol(library, "cuParamSetf");
  Print("lazy", many(1, 2.5f, 3, 4.5, 5, 6, 7, 8, 9.5, 10));
  Print("bound", many(1, 2.5f, 3, 4.5, 5, 6, 7, 8, 9.5, 10));
  return 0;
}

/* Opens a library that opens others, and prints what its function returns. */
static int PluginCommand(const char* path, const char* mode) {
  void* library = Need(dlopen(path, RTLD_NOW | (strcmp(mode, "deepbind") == 0 ? RTLD_DEEPBIND : 0)), path);
  Print("plugin", Call(library, "PluginMain"));
  return 0;
}

/* By name from the global scope, which a preload is in. */
static int ScopesCommand(void) {
  Print("init", CallInit(RTLD_DEFAULT));
  Print("default", Call(RTLD_DEFAULT, "cuLaunchKernel"));
  Print("next", Call(RTLD_NEXT, "cuLaunchKernel"));
  Print("next_per_thread", Call(RTLD_NEXT, "cuLaunchKernel_ptsz"));
  Print("unknown", dlsym(RTLD_DEFAULT, "cuNoSuchName") != NULL);
  return 0;
}

static int FailingOpenCommand(const char* path) {
  void* library = dlopen(path, RTLD_NOW);
  const char* error = dlerror();
  printf("opened=%d\nerror_names_it=%d\n", library != NULL, error && strstr(error, path) != NULL);
  return 0;
}

static int CountEntries(const char* directory) {
  DIR* entries = opendir(directory);
  int count = 0;
  while (entries && readdir(entries)) ++count;
  if (entries) closedir(entries);
  return count;
}

static int FactsCommand(void) {
  Print("threads", CountEntries("/proc/self/task") - 2);
  Print("files", CountEntries("/proc/self/fd") - 3);
  return 0;
}

static int ConfCommand(const char* library) {
  if (*library) dlopen(library, RTLD_NOW); /* fails: only its name matters to the hook */
  static const char* const kNames[] = {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF",
                                       "SPILLWAY_ALLOC_CONF_ORIGINAL"};
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 3; ++i)
      printf("%d %s=%s\n", round, kNames[i], getenv(kNames[i]) ? getenv(kNames[i]) : "(unset)");
    if (round == 0) {
      fflush(stdout);
      CallInit(Open("libcuda.so.1"));
    }
  }
  return 0;
}

static Function in_data_;
static void* by_name_;
void* never_called_ = NULL; /* not static, so that the compiler keeps it */

/* Looks functions up before the shim is there, then loads it and has it take the driver over. `how`: "initialised"
 * or "unknown" make that impossible. */
static int RebindCommand(const char* shim_path, const char* how) {
  void* library = Open("libcuda.so.1");
  Function* volatile in_heap = malloc(sizeof(Function));
  in_data_ = (Function)Symbol(library, "cuLaunchKernel");
  *in_heap = (Function)Symbol(library, "cuLaunchKernel_ptsz");
  ((GetProc)Symbol(library, "cuGetProcAddress"))("cuLaunchKernelEx", &by_name_, 12000, 0);
  if (strcmp(how, "unknown") == 0) never_called_ = Symbol(library, "cuExportedOfTheFuture");
  if (strcmp(how, "initialised") == 0) CallInit(library);

  void* shim = Need(dlopen(shim_path, RTLD_NOW | RTLD_GLOBAL), shim_path);
  char why[256] = "";
  long rewritten = ((long (*)(char*, size_t))Symbol(shim, "spillway_rebind"))(why, sizeof(why));
  printf("rebind=%s%s\n", rewritten < 0 ? "refused: " : rewritten > 0 ? "some" : "none", why);
  Print("data", in_data_());
  Print("init", CallInit(library));
  Print("data", in_data_());
  Print("heap", (*in_heap)());
  Print("by_name", by_name_ ? ((Function)by_name_)() : 0);
  Print("later", Call(library, "cuLaunchKernel"));
  Print("unknown", dlsym(library, "cuExportedOfTheFuture") != NULL);
  Print("again", (int)((long (*)(char*, size_t))Symbol(shim, "spillway_rebind"))(why, sizeof(why)));
  return 0;
}

#ifdef PROBE_LINKED
int cuInit(unsigned int flags);
int cuLaunchKernel(void);
int cuLaunchKernel_ptsz(void);

static int LinkedCommand(void) {
  Print("init", cuInit(0));
  Print("launch", cuLaunchKernel());
  Print("launch_ptsz", cuLaunchKernel_ptsz());
  return 0;
}
#endif

int main(int argc, char** argv) {
  const char* command = argc > 1 ? argv[1] : "";
  const char* argument = argc > 2 ? argv[2] : "";
#ifdef PROBE_LINKED
  if (strcmp(command, "rebind") == 0) { /* what the loader has bound already */
    void* shim = Need(dlopen(argument, RTLD_NOW | RTLD_GLOBAL), argument);
    char why[256] = "";
    Print("rebind", ((long (*)(char*, size_t))Symbol(shim, "spillway_rebind"))(why, sizeof(why)) >= 0);
    return LinkedCommand();
  }
  if (strcmp(command, "linked") == 0) return LinkedCommand();
#endif
  if (strcmp(command, "open") == 0) return OpenCommand(argument);
  if (strcmp(command, "call") == 0) return CallAll(argc - 2, argv + 2);
  if (strcmp(command, "getproc") == 0) return GetProcCommand(argument);
  if (strcmp(command, "future") == 0) return FutureCommand();
  if (strcmp(command, "look-ups") == 0) return LookUpsCommand();
  if (strcmp(command, "late") == 0) return LateCommand();
  if (strcmp(command, "race") == 0) return RaceCommand();
  if (strcmp(command, "constructor-race") == 0) return ConstructorRaceCommand(argument);
  if (strcmp(command, "fork") == 0) return ForkCommand(argument);
  if (strcmp(command, "arguments") == 0) return ArgumentsCommand();
  if (strcmp(command, "plugin") == 0) return PluginCommand(argument, argc > 3 ? argv[3] : "");
  if (strcmp(command, "failing-open") == 0) return FailingOpenCommand(argument);
  if (strcmp(command, "facts") == 0) return FactsCommand();
  if (strcmp(command, "scopes") == 0) return ScopesCommand();
  if (strcmp(command, "rebind") == 0) return RebindCommand(argument, argc > 3 ? argv[3] : "");
  if (strcmp(command, "conf") == 0) return ConfCommand(argument);
  if (strcmp(command, "chdir") == 0) return chdir("/") == 0 ? OpenCommand("libcuda.so.1") : 1;
  fprintf(stderr, "unknown command %s\n", command);
  return 2;
}
