/* cuGetProcAddress, both forms: asks the real driver, and replaces the answer by our trampoline if the
 * pointer is that of a wrapped function. The pointer decides, never the name with its newest suffix, since
 * one name has several ABIs. Owns the record of must-hooks that the job got without a wrapper. */

#include "integration/preload/shim.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>

enum {
  kLegacyFlag = 1,        /* CU_GET_PROC_ADDRESS_LEGACY_STREAM */
  kPerThreadFlag = 2,     /* CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM */
  kNewestVersion = 13050, /* of the toolkits behind driver_functions.def; a test compares */
};

static int IsHooked(int row) { return row >= 0 && RowUseOf(row) >= kUseHook; }

/* Returns the row of an inner twin. Drivers answer with the functions that they export. If one answers with
 * an inner twin, the table of versions names the exported function. That is valid only for versions that the
 * table covers, and only if the pointer is the driver's own, not that of a tool which wraps it. */
static int FindTwin(const void* pointer, const struct Request* request) {
  Dl_info asked, driver;
  int row = request->version <= kNewestVersion ? FindRowOfRequest(request, 1) : -1;
  if (!IsHooked(row) || !dladdr(pointer, &asked) || !dladdr(RowReal(row), &driver)) return -1;
  return asked.dli_fbase == driver.dli_fbase ? row : -1;
}

/* Reports that there are no stubs left: the function is handed out as it is. A wrapped name ends evictions at
 * once; any other gets one line for the process. */
static void ReportWithoutStub(const struct Request* request) {
  static atomic_int reported;
  if (IsHookedBase(request->base)) {
    ReportUnwrapped(request->base, request->version);
  } else if (!atomic_exchange(&reported, 1)) {
    LogLine(request->base,
        " and perhaps others are newer than this version of Spillway: calls to them are not seen", NULL);
  }
}

/* Returns whether the effect of a call may last until after there are blocks, though the call came before:
 * that of a name which is wrapped in its other ABIs, and of a function that hands out functions. */
static int MayLast(const char* base) { return IsHookedBase(base) || strncmp(base, "cuGet", 5) == 0; }

/* Returns what the caller gets for the real driver's `pointer`. */
static void* Route(void* pointer, const struct Request* request) {
  int row = FindRowOfReal(pointer, request);
  if (row < 0) row = FindTwin(pointer, request);
  if (IsHooked(row)) return RowTrampoline(row);
  if (row >= 0 || SwitchedOff()) return pointer;
  /* driver_functions.def does not have this function, or this ABI of it. If the function's other ABIs are
   * passed on, this one does what they do. */
  if (IsKnownBase(request->base) && !IsHookedBase(request->base)) return pointer;
  void* stub = NewerStub(pointer, request->base, request->version, MayLast(request->base));
  if (!stub) ReportWithoutStub(request);
  return stub ? stub : pointer;
}

/* CUdriverProcAddressQueryResult */
enum { kFound = 0, kSymbolNotFound = 1, kVersionNotSufficient = 2 };

/* The caller gets the trampolines if there is no driver; their functions return that error. A name that is
 * not there is answered as a driver answers it. */
static int AnswerWithoutDriver(const struct Request* request, void** pointer) {
  int row = FindRowOfRequest(request, 0);
  *pointer = row >= 0 ? RowTrampoline(row) : NULL;
  if (row >= 0) return kFound;
  return *request->base && IsKnownBase(request->base) ? kVersionNotSufficient : kSymbolNotFound;
}

static int IsSane(const char* name, void** pointer, uint64_t flags) {
  return name && pointer && (flags & ~(uint64_t)(kLegacyFlag | kPerThreadFlag)) == 0;
}

static void* RealOf(const char* symbol) { return RowReal(FindRow(symbol)); }

int WrappedGetProcAddress(const char* name, void** pointer, int version, uint64_t flags) {
  int (*real)(const char*, void**, int, uint64_t) =
      (int (*)(const char*, void**, int, uint64_t))RealOf("cuGetProcAddress");
  struct Request request = {name, version, (flags & kPerThreadFlag) != 0};
  if (!real) {
    void* found = NULL;
    if (!IsSane(name, pointer, flags)) return kCudaInvalidValue;
    if (AnswerWithoutDriver(&request, &found) != kFound) return kCudaNotFound;
    *pointer = found;
    return kCudaSuccess;
  }
  int result = real(name, pointer, version, flags);
  if (result == kCudaSuccess && name && pointer && *pointer) *pointer = Route(*pointer, &request);
  return result;
}

int WrappedGetProcAddressV2(const char* name, void** pointer, int version, uint64_t flags, void* status) {
  int (*real)(const char*, void**, int, uint64_t, void*) =
      (int (*)(const char*, void**, int, uint64_t, void*))RealOf("cuGetProcAddress_v2");
  struct Request request = {name, version, (flags & kPerThreadFlag) != 0};
  if (!real) {
    if (!IsSane(name, pointer, flags)) return kCudaInvalidValue;
    int found = AnswerWithoutDriver(&request, pointer);
    if (status) *(int*)status = found;
    return kCudaSuccess;
  }
  int result = real(name, pointer, version, flags, status);
  if (result == kCudaSuccess && name && pointer && *pointer) *pointer = Route(*pointer, &request);
  return result;
}
