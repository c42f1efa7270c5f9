/* cuGetProcAddress, both forms: asks the real driver and replaces what it answers by our trampoline when the pointer
 * is that of a wrapped function. By identity of the pointer, never by name and newest suffix: one name has several
 * ABIs. Owns the record of must-hooks that somebody got without a wrapper. */

#include "integration/preload/shim.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kPerThreadFlag = 2 }; /* CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM */

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

/* What the asker is given for the real driver's `pointer`. */
static void* Route(void* pointer, const char* name, int version, uint64_t flags) {
  int slot = FindSlotOfReal(pointer, name, (flags & kPerThreadFlag) != 0);
  enum SlotUse use = slot >= 0 ? SlotUseOf(slot) : kUseNone;
  if (use == kUseHook || use == kUseMust) return SlotTrampoline(slot);
  /* An ABI of the name that driver_functions.def does not know, or an entry that is not exported. */
  if (slot < 0 && IsMustBase(name)) ReportUnwrapped(name, version);
  return pointer;
}

/* Without a driver: the trampolines, which say so. */
static int AnswerWithoutDriver(const char* name, void** pointer, int version, uint64_t flags) {
  int best = -1;
  int per_thread = (flags & kPerThreadFlag) != 0;
  for (int slot = 0; slot < SlotCount(); ++slot) {
    if (strcmp(SlotBase(slot), name) != 0 || SlotVersion(slot) > version) continue;
    if (SlotIsPerThread(slot) && !per_thread) continue;
    int better = best < 0 || SlotIsPerThread(slot) > SlotIsPerThread(best) ||
                 (SlotIsPerThread(slot) == SlotIsPerThread(best) && SlotVersion(slot) > SlotVersion(best));
    if (better) best = slot;
  }
  *pointer = best >= 0 ? SlotTrampoline(best) : NULL;
  return best >= 0 ? kCudaSuccess : kCudaNotFound;
}

static void* RealOf(const char* symbol) { return SlotReal(FindSlot(symbol)); }

int WrappedGetProcAddress(const char* name, void** pointer, int version, uint64_t flags) {
  int (*real)(const char*, void**, int, uint64_t) =
      (int (*)(const char*, void**, int, uint64_t))RealOf("cuGetProcAddress");
  if (!real) return name && pointer ? AnswerWithoutDriver(name, pointer, version, flags) : kCudaInvalidValue;
  int result = real(name, pointer, version, flags);
  if (result == kCudaSuccess && name && pointer && *pointer) *pointer = Route(*pointer, name, version, flags);
  return result;
}

int WrappedGetProcAddressV2(const char* name, void** pointer, int version, uint64_t flags, void* status) {
  int (*real)(const char*, void**, int, uint64_t, void*) =
      (int (*)(const char*, void**, int, uint64_t, void*))RealOf("cuGetProcAddress_v2");
  if (!real) {
    if (!name || !pointer) return kCudaInvalidValue;
    int result = AnswerWithoutDriver(name, pointer, version, flags);
    /* CU_GET_PROC_ADDRESS_SUCCESS or _SYMBOL_NOT_FOUND */
    if (status) *(int*)status = result == kCudaSuccess ? 0 : 1;
    return result;
  }
  int result = real(name, pointer, version, flags, status);
  if (result == kCudaSuccess && name && pointer && *pointer) *pointer = Route(*pointer, name, version, flags);
  return result;
}
