/* The record of must-hooks that the job got, or called, without a wrapper. The engine asks for the first one,
   and gets each by a callback. Thread-safe; takes no lock. */

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "integration/preload/shim.h"

/* One reported name. The list only grows. */
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
