/* cuGetProcAddress, both forms: asks the real driver and replaces what it answers by our trampoline when the
 * pointer is that of a wrapped function. The pointer decides, never the name with its newest suffix: one name
 * has several ABIs. Owns the record of must-hooks that the job got without a wrapper. */

#include "integration/preload/shim.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  kLegacyFlag = 1,        /* CU_GET_PROC_ADDRESS_LEGACY_STREAM */
  kPerThreadFlag = 2,     /* CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM */
  kNewestVersion = 13020, /* of the toolkits behind driver_functions.def; a test compares */
};

/* One reported name; a list that only grows. */
struct Unwrapped {
  struct Unwrapped* next;
  int version;
  char name[80];
};

static _Atomic(struct Unwrapped*) unwrapped_; /* newest first */
static _Atomic(struct Unwrapped*) first_unwrapped_;
static void (*_Atomic callback_)(const char* name, int version);

void SetUnwrappedCallback(void (*callback)(const char* name, int version)) {
  atomic_store(&callback_, callback);
}

int FirstUnwrapped(char* name, size_t bytes) {
  const struct Unwrapped* first = atomic_load(&first_unwrapped_);
  if (!first) return -1;
  snprintf(name, bytes, "%s", first->name);
  return first->version;
}

void ReportUnwrapped(const char* name, int version) {
  struct Unwrapped* head = atomic_load(&unwrapped_);
  struct Unwrapped* entry = NULL;
  do {
    for (const struct Unwrapped* known = head; known; known = known->next) {
      if (strcmp(known->name, name) == 0) {
        free(entry);
        return;
      }
    }
    if (!entry) entry = calloc(1, sizeof(*entry));
    if (!entry) break;
    entry->next = head;
    entry->version = version;
    snprintf(entry->name, sizeof(entry->name), "%s", name);
  } while (!atomic_compare_exchange_weak(&unwrapped_, &head, entry));
  struct Unwrapped* none = NULL;
  if (entry) atomic_compare_exchange_strong(&first_unwrapped_, &none, entry);
  void (*callback)(const char*, int) = atomic_load(&callback_);
  if (callback) callback(name, version);
}

static int IsHooked(int row) { return row >= 0 && (RowUseOf(row) == kUseHook || RowUseOf(row) == kUseMust); }

/* Drivers answer with the functions that they export. Should one answer with an inner twin, the table of
 * versions says which exported function that is. That holds only for versions that the table covers, and only
 * when the pointer is the driver's own and not that of a tool which wraps it. */
static int FindTwin(const void* pointer, const struct Request* request) {
  Dl_info asked, driver;
  int row = request->version <= kNewestVersion ? FindRowOfRequest(request, 1) : -1;
  if (!IsHooked(row) || !dladdr(pointer, &asked) || !dladdr(RowReal(row), &driver)) return -1;
  return asked.dli_fbase == driver.dli_fbase ? row : -1;
}

/* Writes one line per process about a function that driver_functions.def does not name: the driver and the
 * caller are newer than we are. That is no reason to stop evicting: a runtime asks for every name, also for
 * those that it never calls. */
static void ReportNewerName(const struct Request* request) {
  static atomic_int reported;
  if (IsKnownBase(request->base) || SwitchedOff() || atomic_exchange(&reported, 1)) return;
  Say(request->base,
      " and perhaps others are newer than this version of Spillway: calls of them are not seen", NULL);
}

/* What the caller gets for the real driver's `pointer`. */
static void* Route(void* pointer, const struct Request* request) {
  int row = FindRowOfReal(pointer, request);
  if (row < 0) row = FindTwin(pointer, request);
  if (IsHooked(row)) return RowTrampoline(row);
  /* An ABI of the name that driver_functions.def does not know. */
  if (row < 0 && IsMustBase(request->base)) ReportUnwrapped(request->base, request->version);
  if (row < 0) ReportNewerName(request);
  return pointer;
}

/* CUdriverProcAddressQueryResult */
enum { kFound = 0, kSymbolNotFound = 1, kVersionNotSufficient = 2 };

/* Without a driver the caller gets the trampolines, whose functions return that error. What is not there is
 * answered as a driver answers it. */
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
