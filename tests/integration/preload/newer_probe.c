/* The program that newer_test.py runs: functions of the driver that no table of ours has, looked up and called. */

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/integration/preload/probe.h"

/* Looks names up that no table of ours has, without calling what is found. */
static int LookUpCommand(int count, char** names) {
  void* library = Open("libcuda.so.1");
  GetProc get = (GetProc)Symbol(library, "cuGetProcAddress");
  Print("init", CallInit(library));
  for (int i = 0; i < count; ++i) {
    void *first = NULL, *second = NULL;
    get(names[i], &first, 99000, 0);
    get(names[i], &second, 99000, 0);
    Print(names[i], first != NULL && first == second);
  }
  return 0;
}

/* Looks them up and calls them, each twice, with --before also once before cuInit. */
static int CallCommand(int count, char** names) {
  void* library = Open("libcuda.so.1");
  GetProc get = (GetProc)Symbol(library, "cuGetProcAddress");
  if (count > 0 && strcmp(names[0], "--before") == 0) {
    --count, ++names;
    Ask(get, names[0], 99000, 0);
  }
  Print("init", CallInit(library));
  for (int i = 0; i < 2 * count; ++i) Ask(get, names[i / 2], 99000, 0);
  Ask(get, "cuLaunchKernel", 12000, 0);
  return 0;
}

/* More functions than there are stubs. */
static int NumberedCommand(int count) {
  void* library = Open("libcuda.so.1");
  GetProc get = (GetProc)Symbol(library, "cuGetProcAddress");
  Print("init", CallInit(library));
  int wrong = 0;
  for (int i = 0; i < 2 * count; ++i) {
    char name[32];
    void* pointer = NULL;
    snprintf(name, sizeof(name), "cuNumbered%d", i % count);
    get(name, &pointer, 99000, 0);
    wrong += !pointer || ((Function)pointer)() != i % count;
  }
  Print("wrong", wrong);
  Ask(get, "cuLaunchKernel", 99000, 0);
  return 0;
}

typedef double Four __attribute__((vector_size(32)));
typedef double Eight __attribute__((vector_size(64)));

__attribute__((target("avx"))) static int CallWide(void* pointer) {
  typedef int (*Wide)(Four, Four, Four, Four, Four, Four, Four, Four, Four);
  Four v[9];
  for (int i = 0; i < 9; ++i) v[i] = (Four){i, i + 10, i + 100, i + 1000};
  return ((Wide)pointer)(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8]);
}

__attribute__((target("avx512f"))) static int CallWidest(void* pointer) {
  typedef int (*Widest)(Eight, Eight);
  return ((Widest)pointer)((Eight){1, 2, 3, 4, 5, 6, 7, 8}, (Eight){10, 20, 30, 40, 50, 60, 70, 80});
}

/* Every register that may carry an argument reaches a newer function, at its first call and later. */
static int RegistersCommand(void) {
  typedef int (*Many)(long, float, long, double, long, long, long, long, double, long, double, double, double,
                      double, double, double);
  void* library = Open("libcuda.so.1");
  GetProc get = (GetProc)Symbol(library, "cuGetProcAddress");
  Print("init", CallInit(library));
  void *many = NULL, *wide = NULL, *widest = NULL;
  get("cuManyOfTheFuture", &many, 99000, 0);
  get("cuWideOfTheFuture", &wide, 99000, 0);
  get("cuWidestOfTheFuture", &widest, 99000, 0);
  for (int i = 0; i < 2; ++i) {
    Print("many", ((Many)many)(1, 2.5f, 3, 4.5, 5, 6, 7, 8, 9.5, 10, 11.5, 12.5, 13.5, 14.5, 15.5, 16.5));
    Print("wide", __builtin_cpu_supports("avx") ? CallWide(wide) : -1);
    Print("widest", __builtin_cpu_supports("avx512f") ? CallWidest(widest) : -1);
  }
  return 0;
}

enum { kCallsOfAThread = 10000 };

static void* NewerThread(void* get) {
  intptr_t right = 0;
  for (int i = 0; i < kCallsOfAThread; ++i) {
    void* pointer = NULL;
    char name[32];
    snprintf(name, sizeof(name), "cuNumbered%d", i % 7);
    ((GetProc)get)(name, &pointer, 99000, 0);
    right += ((Function)pointer)() == i % 7;
  }
  return (void*)right;
}

static int ThreadsCommand(void) {
  enum { kThreads = 8 };
  pthread_t threads[kThreads];
  void* library = Open("libcuda.so.1");
  void* get = Symbol(library, "cuGetProcAddress");
  Print("init", CallInit(library));
  for (int i = 0; i < kThreads; ++i) pthread_create(&threads[i], NULL, NewerThread, get);
  int right = 0;
  for (int i = 0; i < kThreads; ++i) {
    void* result;
    pthread_join(threads[i], &result);
    right += (intptr_t)result == kCallsOfAThread;
  }
  Print("right", right);
  return 0;
}

/* A child that is forked from a process with an engine calls the real functions. */
static int ForkCommand(void) {
  void* library = Open("libcuda.so.1");
  GetProc get = (GetProc)Symbol(library, "cuGetProcAddress");
  Print("init", CallInit(library));
  pid_t child = fork();
  if (child == 0) {
    Ask(get, "cuFunctionOfTheFuture", 99000, 0);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  Print("child_status", status);
  return 0;
}

/* What a call costs; with SPILLWAY=off it is that of the bare function. */
static int TimeCommand(void) {
  enum { kCalls = 20000000 };
  void *library = Open("libcuda.so.1"), *pointer = NULL;
  GetProc get = (GetProc)Symbol(library, "cuGetProcAddress");
  Print("init", CallInit(library));
  get("cuFunctionOfTheFuture", &pointer, 99000, 0);
  Function function = (Function)pointer;
  struct timespec start, end;
  int right = function() == 99001;
  clock_gettime(CLOCK_MONOTONIC, &start);
  for (int i = 0; i < kCalls; ++i) right += function() == 99001;
  clock_gettime(CLOCK_MONOTONIC, &end);
  double ns = (double)(end.tv_sec - start.tv_sec) * 1e9 + (double)(end.tv_nsec - start.tv_nsec);
  printf("right=%d ns=%.2f\n", right == kCalls + 1, ns / kCalls);
  return 0;
}

int main(int argc, char** argv) {
  const char* command = argc > 1 ? argv[1] : "";
  if (strcmp(command, "look-up") == 0) return LookUpCommand(argc - 2, argv + 2);
  if (strcmp(command, "call") == 0) return CallCommand(argc - 2, argv + 2);
  if (strcmp(command, "numbered") == 0) return NumberedCommand(argc > 2 ? atoi(argv[2]) : 0);
  if (strcmp(command, "registers") == 0) return RegistersCommand();
  if (strcmp(command, "threads") == 0) return ThreadsCommand();
  if (strcmp(command, "fork") == 0) return ForkCommand();
  if (strcmp(command, "time") == 0) return TimeCommand();
  fprintf(stderr, "unknown command %s\n", command);
  return 2;
}
