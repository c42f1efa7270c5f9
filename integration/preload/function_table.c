/* The function table: one row per driver symbol, with its name, the address of the real function, and the
 * current target of its calls. Owns the jump table of trampolines.S. driver.c finds the driver, routing.c
 * chooses pointers, and resolve.c handles the first call through a row. */

#include "integration/preload/shim.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct Row {
  const char* symbol;
  const char* base;
  int version;
  int per_thread;
};

#define DEFAULT 0
#define PER_THREAD 1
static const struct Row kRows[] = {
#define DRIVER_FUNCTION(symbol, name, version, form) {#symbol, #name, version, form},
#include "allocator/driver/driver_functions.def"
#undef DRIVER_FUNCTION
};
#undef DEFAULT
#undef PER_THREAD

enum { kRowCount = sizeof(kRows) / sizeof(kRows[0]) };

/* The bytes of one trampoline in trampolines.S. */
enum { kTrampolineBytes = 16 };

/* The current targets of calls: a lazy stub, the real function, or a wrapper. The trampolines read a target
 * without any order. An aligned pointer is read whole, and what it points at was complete before the store.
 */
extern _Atomic(void*) spillway_targets[kRowCount];
extern const char spillway_trampolines[];

static void* lazy_[kRowCount];             /* the stubs that the targets start with */
static _Atomic(void*) real_[kRowCount];    /* written once by FillRows */
static _Atomic(void*) wrapper_[kRowCount]; /* of the engine */
static void* own_[kRowCount];              /* the shim's own wrappers, NULL for all but a few; likewise */
static unsigned char use_[kRowCount];      /* enum RowUse */
static short by_address_[kRowCount];       /* rows with a real function, sorted by its address */
static int by_address_count_;
static atomic_int watching_;      /* WatchUnwrappedRows was called */
static atomic_int wrappers_dead_; /* RemoveWrappers was called */

int RowCount(void) { return kRowCount; }
const char* RowSymbol(int row) { return kRows[row].symbol; }
enum RowUse RowUseOf(int row) { return (enum RowUse)use_[row]; }
void* RowReal(int row) { return atomic_load(&real_[row]); }

void* RowTrampoline(int row) { return (void*)(uintptr_t)(spillway_trampolines + row * kTrampolineBytes); }

static int CompareSymbol(const void* symbol, const void* row) {
  return strcmp(symbol, ((const struct Row*)row)->symbol);
}

int FindRow(const char* symbol) {
  const struct Row* found = bsearch(symbol, kRows, kRowCount, sizeof(kRows[0]), CompareSymbol);
  return found ? (int)(found - kRows) : -1;
}

static void FillUses(void) {
  static const struct {
    const char* symbol;
    enum RowUse use;
  } kUses[] = {
#define USED kUseUsed
#define HOOK kUseHook
#define MUST kUseMust
#define DRIVER_SYMBOL(symbol, use) {#symbol, use},
#include "allocator/driver/driver_symbols.def"
#undef DRIVER_SYMBOL
#undef USED
#undef HOOK
#undef MUST
  };
  for (size_t i = 0; i < sizeof(kUses) / sizeof(kUses[0]); ++i) {
    int row = FindRow(kUses[i].symbol);
    if (row >= 0) use_[row] = (unsigned char)kUses[i].use;
  }
}

static int CompareAddress(const void* a, const void* b) {
  uintptr_t left = (uintptr_t)real_[*(const short*)a], right = (uintptr_t)real_[*(const short*)b];
  return left < right ? -1 : left > right;
}

/* Returns how well a row fits a request; 0: not at all. If one function has several names, only the one that
 * was asked for may be taken. */
static int Fit(int row, const struct Request* request) {
  const struct Row* facts = &kRows[row];
  if (strcmp(facts->base, request->base) != 0) return 0;
  int fit = 1;
  if (facts->version <= request->version) fit += facts->version;
  if (facts->per_thread == request->per_thread) fit += 1000000; /* above any version */
  return fit;
}

/* Returns the place in by_address_ of the first row that is at `address` or above. */
static int PlaceOfReal(const void* address) {
  int low = 0, high = by_address_count_;
  while (low < high) {
    int middle = (low + high) / 2;
    if ((uintptr_t)real_[by_address_[middle]] < (uintptr_t)address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

int RowAtReal(const void* address) {
  int best = -1;
  for (int place = PlaceOfReal(address); place < by_address_count_ && real_[by_address_[place]] == address;
       ++place) {
    int row = by_address_[place];
    if (best < 0 || use_[row] > use_[best] ||
        (use_[row] == use_[best] && kRows[row].per_thread < kRows[best].per_thread)) {
      best = row;
    }
  }
  return best;
}

int FindRowOfReal(const void* address, const struct Request* request) {
  int best = -1, best_fit = -1;
  for (int place = PlaceOfReal(address); place < by_address_count_ && real_[by_address_[place]] == address;
       ++place) {
    int fit = Fit(by_address_[place], request);
    if (fit > best_fit) {
      best = by_address_[place];
      best_fit = fit;
    }
  }
  return best;
}

int FindRowOfRequest(const struct Request* request, int only_real) {
  int best = -1, best_fit = 0;
  for (int row = 0; row < kRowCount; ++row) {
    if (kRows[row].per_thread > request->per_thread || kRows[row].version > request->version) continue;
    if (kRows[row].version == 0 || (only_real && !RowReal(row))) continue;
    int fit = Fit(row, request);
    if (fit > best_fit) {
      best = row;
      best_fit = fit;
    }
  }
  return best;
}

int IsKnownBase(const char* base) {
  for (int row = 0; row < kRowCount; ++row) {
    if (strcmp(kRows[row].base, base) == 0) return 1;
  }
  return *base == '\0'; /* runtimes ask for no name at all */
}

int IsHookedBase(const char* base) {
  for (int row = 0; row < kRowCount; ++row) {
    if (use_[row] >= kUseHook && strcmp(kRows[row].base, base) == 0) return 1;
  }
  return 0;
}

/* Stand-ins for functions that are not there. They ignore their arguments. */

static int MissingFunction(void) { return kCudaNotSupported; }
static int NoDriver(void) { return kCudaNoDevice; }

static int NoDriverVersion(int* version) {
  if (!version) return kCudaInvalidValue;
  *version = 0;
  return kCudaSuccess;
}

static int NoDriverErrorName(int error, const char** text) {
  (void)error;
  if (!text) return kCudaInvalidValue;
  *text = "CUDA_ERROR_NO_DEVICE";
  return kCudaSuccess;
}

static int NoDriverErrorString(int error, const char** text) {
  (void)error;
  if (!text) return kCudaInvalidValue;
  *text = "no CUDA driver was found on this machine";
  return kCudaSuccess;
}

static void* WithoutDriver(int row) {
  static const struct {
    const char* symbol;
    void* function;
  } kStandIns[] = {
      {"cuDriverGetVersion", (void*)NoDriverVersion},
      {"cuGetErrorName", (void*)NoDriverErrorName},
      {"cuGetErrorString", (void*)NoDriverErrorString},
  };
  for (size_t i = 0; i < sizeof(kStandIns) / sizeof(kStandIns[0]); ++i) {
    if (strcmp(kRows[row].symbol, kStandIns[i].symbol) == 0) return kStandIns[i].function;
  }
  return (void*)NoDriver;
}

/* Returns the target of the row's calls without a wrapper of the engine. */
static void* PlainTarget(int row, int has_driver) {
  void* real = atomic_load(&real_[row]);
  if (own_[row] && (real || !has_driver)) return own_[row];
  if (real) return real;
  return has_driver ? (void*)MissingFunction : WithoutDriver(row);
}

void LookUpRows(void* driver, void** real) {
  for (int row = 0; row < kRowCount; ++row) {
    real[row] = driver ? dlsym(driver, kRows[row].symbol) : NULL;
    if (real[row] == RowTrampoline(row)) real[row] = NULL; /* the look-up came back to us */
  }
}

void FillRows(void* const* real, int has_driver, const struct OwnWrapper* own) {
  FillUses();
  for (; own->symbol; ++own) {
    int row = FindRow(own->symbol);
    if (row >= 0) own_[row] = own->function;
  }
  for (int row = 0; row < kRowCount; ++row) {
    lazy_[row] = atomic_load(&spillway_targets[row]);
    atomic_store(&real_[row], real[row]);
    if (real[row]) by_address_[by_address_count_++] = (short)row;
  }
  qsort(by_address_, (size_t)by_address_count_, sizeof(by_address_[0]), CompareAddress);
  for (int row = 0; row < kRowCount; ++row) {
    atomic_store(&spillway_targets[row], PlainTarget(row, has_driver));
  }
}

void WatchUnwrappedRows(void) {
  atomic_store(&watching_, 1);
  for (int row = 0; row < kRowCount; ++row) {
    void* real = RowReal(row);
    if (use_[row] != kUseMust || !real || atomic_load(&wrapper_[row])) continue;
    void* expected = real; /* an install from another thread wins */
    atomic_compare_exchange_strong(&spillway_targets[row], &expected, lazy_[row]);
  }
}

int InstallWrapper(const char* symbol, void* wrapper) {
  int row = FindRow(symbol);
  if (row < 0 || !RowReal(row) || own_[row] || atomic_load(&wrappers_dead_)) return -1;
  atomic_store(&wrapper_[row], wrapper);
  void* plain = use_[row] == kUseMust && atomic_load(&watching_) ? lazy_[row] : RowReal(row);
  atomic_store(&spillway_targets[row], wrapper ? wrapper : plain);
  return 0;
}

void RemoveWrappers(void) {
  atomic_store(&wrappers_dead_, 1);
  for (int row = 0; row < kRowCount; ++row) {
    atomic_store(&wrapper_[row], NULL);
    if (RowReal(row)) atomic_store(&spillway_targets[row], PlainTarget(row, 1));
  }
}

int RowOfTarget(void** target) { return (int)((_Atomic(void*)*)target - spillway_targets); }

void* RowTarget(int row) {
  void* now = atomic_load(&spillway_targets[row]);
  return now == lazy_[row] ? NULL : now;
}

void* SkipLazyStub(int row) {
  void* expected = lazy_[row];
  atomic_compare_exchange_strong(&spillway_targets[row], &expected, RowReal(row));
  return atomic_load(&spillway_targets[row]);
}
