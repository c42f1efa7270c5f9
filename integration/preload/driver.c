/* Finds and opens the real driver, once per process, at the first call of a driver function. Owns the real
   driver's handle and the facts about it. driver_search.c knows the places. */

#include "integration/preload/shim.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static atomic_int open_;             /* 1 once the rows are filled; pairs with the load in DriverIsOpen */
static _Atomic(char*) hint_;         /* a path by which the job asked for the driver */
static char* path_;                  /* path of the real driver; written before open_ */
static char directory_[4096];        /* directory of this library; written before open_ */
static atomic_int loaded_before_us_; /* some libcuda was there before, and its calls are not seen */
static atomic_int
    opening_files_;           /* a thread has begun to open files: a libcuda seen from now on may be ours */
static __thread int opening_; /* this thread is in OpenDriver */

/* The result of one thread's search; only that of the first thread to finish is taken. */
struct Found {
  void* handle;
  char* path;
  struct stat own; /* this library's file */
};
static __thread struct Found found_;

int DriverIsOpen(void) { return atomic_load(&open_); }
const char* DriverPath(void) { return path_; }
int DriverWasAlreadyLoaded(void) { return atomic_load(&loaded_before_us_); }
void RecordDriverRebound(void) { atomic_store(&loaded_before_us_, 0); }
const char* ShimDirectory(void) { return directory_; }

void RememberDriverHint(const char* path) {
  if (atomic_load(&hint_)) return;
  char* copy = strdup(path);
  char* expected = NULL;
  if (copy && !atomic_compare_exchange_strong(&hint_, &expected, copy)) free(copy);
}

/* Writes the path of this library. LD_PRELOAD may have named it relative to a directory that is no longer
   ours: then the kernel knows better than the loader. */
static void FindOwnFile(char* path, size_t bytes) {
  Dl_info info;
  path[0] = '\0';
  if (dladdr(RowTrampoline(0), &info) && info.dli_fname) snprintf(path, bytes, "%s", info.dli_fname);
  if (path[0] == '/') return;
  FILE* maps = fopen("/proc/self/maps", "re");
  if (!maps) return;
  char line[4200];
  uintptr_t here = (uintptr_t)RowTrampoline(0);
  while (fgets(line, sizeof(line), maps)) {
    unsigned long first, end;
    int name = 0;
    if (sscanf(line, "%lx-%lx %*s %*s %*s %*s %n", &first, &end, &name) < 2 || name == 0) continue;
    if (here < first || here >= end) continue;
    line[strcspn(line, "\n")] = '\0';
    snprintf(path, bytes, "%s", line + name);
    break;
  }
  fclose(maps);
}

static int IsOwnFile(const char* path) {
  struct stat facts;
  return stat(path, &facts) == 0 && facts.st_dev == found_.own.st_dev && facts.st_ino == found_.own.st_ino;
}

static int TakeCandidate(const char* path) {
  if (IsOwnFile(path)) return 0;
  void* handle = RealDlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!handle) return 0;
  if (!dlsym(handle, "cuInit") || dlsym(handle, "spillway_version")) {
    dlclose(handle); /* no driver, or another copy of the shim */
    return 0;
  }
  found_.handle = handle;
  found_.path = strdup(path);
  return 1;
}

/* The loader calls this with a lock held, so it may not call the loader. */
static int IsDriverLoadedEarlier(struct dl_phdr_info* info, size_t size, void* path) {
  (void)size;
  const char* slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
  if (!slash || strncmp(slash + 1, "libcuda.so", strlen("libcuda.so")) != 0) return 0;
  if (IsOwnFile(info->dlpi_name)) return 0;
  snprintf(path, 4096, "%s", info->dlpi_name);
  return 1;
}

static void FindDriver(void) {
  char earlier[4096];
  /* The look-up comes before the load of opening_files_: a libcuda that another thread of ours has just
     opened is not one that was there before. */
  int seen = dl_iterate_phdr(IsDriverLoadedEarlier, earlier);
  if (seen && !atomic_load(&opening_files_) && TakeCandidate(earlier)) {
    atomic_store(&loaded_before_us_, 1);
    return;
  }
  atomic_store(&opening_files_, 1);
  if (VisitDriverCandidates(atomic_load(&hint_), TakeCandidate)) return;
  const char* named = Setting("cuda_driver");
  if (!named || !*named) return;
  char words[4200];
  snprintf(words, sizeof(words), " names %s, which cannot be opened as a CUDA driver", named);
  NotServed(SettingSource("cuda_driver"), words, "; CUDA finds no device");
}

/* Called under LockStart, by the first thread that has found the driver. May not call the loader: see
   OpenDriver. */
static void Publish(void* const* real, const char* own_file, const struct OwnWrapper* own,
                    void (*opened)(void)) {
  const char* slash = strrchr(own_file, '/');
  snprintf(directory_, sizeof(directory_), "%.*s", slash ? (int)(slash - own_file) : 1,
           slash ? own_file : ".");
  path_ = found_.path;
  FillRows(real, found_.handle != NULL, own);
  opened();
  atomic_store(&open_, 1);
}

int OpenDriver(const struct OwnWrapper* own, void (*opened)(void)) {
  if (DriverIsOpen()) return 1;
  if (opening_) return 0; /* the driver's own constructors came back through us */
  opening_ = 1;
  TakeConf();
  void** real = calloc((size_t)RowCount(), sizeof(*real));
  if (!real) abort();
  /* The search runs without LockStart: a caller inside a constructor holds the loader's lock, which dlopen,
     dlsym and dladdr need. Two threads that get here together open the same file and find the same. */
  char own_file[sizeof(directory_)];
  FindOwnFile(own_file, sizeof(own_file));
  memset(&found_, 0, sizeof(found_));
  if (stat(own_file, &found_.own) != 0) memset(&found_.own, 0, sizeof(found_.own));
  FindDriver();
  LookUpRows(found_.handle, real);
  LockStart();
  int first = !DriverIsOpen();
  if (first) Publish(real, own_file, own, opened);
  UnlockStart();
  free(real);
  opening_ = 0;
  return 1;
}
