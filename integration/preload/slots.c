/* The slot table: one row per driver symbol, what it is called, where the real one is, where calls go now.
 * Owns the jump table of trampolines.S. Leaves finding the driver to driver.c, the choice of pointers to
 * routing.c and the first call through a slot to resolve.c. */

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

enum { kSlots = sizeof(kRows) / sizeof(kRows[0]) };

/* Each trampoline of trampolines.S takes that many bytes. */
enum { kTrampolineBytes = 16 };

/* Where calls go now: a lazy stub, the real function, or a wrapper. Read by the trampolines without any
 * order; an aligned pointer is read whole, and whatever it points at was complete before the store. */
extern _Atomic(void*) spillway_targets[kSlots];
extern const char spillway_trampolines[];

static void* lazy_[kSlots];             /* the stubs that the targets start with */
static _Atomic(void*) real_[kSlots];    /* written once by FillSlots */
static _Atomic(void*) wrapper_[kSlots]; /* of the engine */
static void* own_[kSlots];              /* the shim's own wrappers, NULL for all but a few; likewise */
static unsigned char use_[kSlots];      /* enum SlotUse */
static short by_address_[kSlots];       /* slots with a real function, sorted by its address */
static int by_address_count_;
static atomic_int watching_;      /* WatchUnwrappedSlots was called */
static atomic_int wrappers_dead_; /* RemoveWrappers was called */

int SlotCount(void) { return kSlots; }
const char* SlotSymbol(int slot) { return kRows[slot].symbol; }
enum SlotUse SlotUseOf(int slot) { return (enum SlotUse)use_[slot]; }
void* SlotReal(int slot) { return atomic_load(&real_[slot]); }

void* SlotTrampoline(int slot) { return (void*)(uintptr_t)(spillway_trampolines + slot * kTrampolineBytes); }

static int CompareSymbol(const void* symbol, const void* row) {
  return strcmp(symbol, ((const struct Row*)row)->symbol);
}

int FindSlot(const char* symbol) {
  const struct Row* row = bsearch(symbol, kRows, kSlots, sizeof(kRows[0]), CompareSymbol);
  return row ? (int)(row - kRows) : -1;
}

static void FillUses(void) {
  static const struct {
    const char* symbol;
    enum SlotUse use;
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
    int slot = FindSlot(kUses[i].symbol);
    if (slot >= 0) use_[slot] = (unsigned char)kUses[i].use;
  }
}

static int CompareAddress(const void* a, const void* b) {
  uintptr_t left = (uintptr_t)real_[*(const short*)a], right = (uintptr_t)real_[*(const short*)b];
  return left < right ? -1 : left > right;
}

/* How well a slot fits a request; of drivers' functions with several names only the asked one may be taken.
 * */
static int Fit(int slot, const struct Request* request) {
  const struct Row* row = &kRows[slot];
  if (strcmp(row->base, request->base) != 0) return 0;
  int fit = 1;
  if (row->version <= request->version) fit += row->version;
  if (row->per_thread == request->per_thread) fit += 1000000; /* above any version */
  return fit;
}

int FindSlotOfReal(const void* address, const struct Request* request) {
  int low = 0, high = by_address_count_;
  while (low < high) {
    int middle = (low + high) / 2;
    if ((uintptr_t)real_[by_address_[middle]] < (uintptr_t)address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  int best = -1, best_fit = -1;
  for (; low < by_address_count_ && real_[by_address_[low]] == address; ++low) {
    int fit = Fit(by_address_[low], request);
    if (fit > best_fit) {
      best = by_address_[low];
      best_fit = fit;
    }
  }
  return best;
}

int FindSlotOfRequest(const struct Request* request, int only_real) {
  int best = -1, best_fit = 0;
  for (int slot = 0; slot < kSlots; ++slot) {
    if (kRows[slot].per_thread > request->per_thread || kRows[slot].version > request->version) continue;
    if (kRows[slot].version == 0 || (only_real && !SlotReal(slot))) continue;
    int fit = Fit(slot, request);
    if (fit > best_fit) {
      best = slot;
      best_fit = fit;
    }
  }
  return best;
}

int IsKnownBase(const char* base) {
  for (int slot = 0; slot < kSlots; ++slot) {
    if (strcmp(kRows[slot].base, base) == 0) return 1;
  }
  return *base == '\0'; /* runtimes ask for no name at all */
}

int IsMustBase(const char* base) {
  for (int slot = 0; slot < kSlots; ++slot) {
    if (use_[slot] == kUseMust && strcmp(kRows[slot].base, base) == 0) return 1;
  }
  return 0;
}

/* What stands in for functions that are not there. They take no notice of their arguments. */

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

static void* WithoutDriver(int slot) {
  static const struct {
    const char* symbol;
    void* function;
  } kStandIns[] = {
      {"cuDriverGetVersion", (void*)NoDriverVersion},
      {"cuGetErrorName", (void*)NoDriverErrorName},
      {"cuGetErrorString", (void*)NoDriverErrorString},
  };
  for (size_t i = 0; i < sizeof(kStandIns) / sizeof(kStandIns[0]); ++i) {
    if (strcmp(kRows[slot].symbol, kStandIns[i].symbol) == 0) return kStandIns[i].function;
  }
  return (void*)NoDriver;
}

/* Where calls of the slot go when the engine has no say. */
static void* PlainTarget(int slot, int has_driver) {
  void* real = atomic_load(&real_[slot]);
  if (own_[slot] && (real || !has_driver)) return own_[slot];
  if (real) return real;
  return has_driver ? (void*)MissingFunction : WithoutDriver(slot);
}

void LookUpSlots(void* driver, void** real) {
  for (int slot = 0; slot < kSlots; ++slot) {
    real[slot] = driver ? dlsym(driver, kRows[slot].symbol) : NULL;
    if (real[slot] == SlotTrampoline(slot)) real[slot] = NULL; /* the look-up came back to us */
  }
}

void FillSlots(void* const* real, int has_driver, const struct OwnWrapper* own) {
  FillUses();
  for (; own->symbol; ++own) {
    int slot = FindSlot(own->symbol);
    if (slot >= 0) own_[slot] = own->function;
  }
  for (int slot = 0; slot < kSlots; ++slot) {
    lazy_[slot] = atomic_load(&spillway_targets[slot]);
    atomic_store(&real_[slot], real[slot]);
    if (real[slot]) by_address_[by_address_count_++] = (short)slot;
  }
  qsort(by_address_, (size_t)by_address_count_, sizeof(by_address_[0]), CompareAddress);
  for (int slot = 0; slot < kSlots; ++slot) {
    atomic_store(&spillway_targets[slot], PlainTarget(slot, has_driver));
  }
}

void WatchUnwrappedSlots(void) {
  atomic_store(&watching_, 1);
  for (int slot = 0; slot < kSlots; ++slot) {
    void* real = SlotReal(slot);
    if (use_[slot] != kUseMust || !real || atomic_load(&wrapper_[slot])) continue;
    void* expected = real; /* an install from another thread wins */
    atomic_compare_exchange_strong(&spillway_targets[slot], &expected, lazy_[slot]);
  }
}

int InstallWrapper(const char* symbol, void* wrapper) {
  int slot = FindSlot(symbol);
  if (slot < 0 || !SlotReal(slot) || own_[slot] || atomic_load(&wrappers_dead_)) return -1;
  atomic_store(&wrapper_[slot], wrapper);
  void* plain = use_[slot] == kUseMust && atomic_load(&watching_) ? lazy_[slot] : SlotReal(slot);
  atomic_store(&spillway_targets[slot], wrapper ? wrapper : plain);
  return 0;
}

void RemoveWrappers(void) {
  atomic_store(&wrappers_dead_, 1);
  for (int slot = 0; slot < kSlots; ++slot) {
    atomic_store(&wrapper_[slot], NULL);
    if (SlotReal(slot)) atomic_store(&spillway_targets[slot], PlainTarget(slot, 1));
  }
}

int SlotOfTarget(void** target) { return (int)((_Atomic(void*)*)target - spillway_targets); }

void* SlotTarget(int slot) {
  void* now = atomic_load(&spillway_targets[slot]);
  return now == lazy_[slot] ? NULL : now;
}

void* SkipLazyStub(int slot) {
  void* expected = lazy_[slot];
  atomic_compare_exchange_strong(&spillway_targets[slot], &expected, SlotReal(slot));
  return atomic_load(&spillway_targets[slot]);
}
