/* Functions of the driver that no table names: the driver and the caller are newer than we are. Asking for
 * one is harmless, since runtimes ask for all names that they know. A call may do anything with any address,
 * so such a function is handed out behind a stub (newer_stubs.S), and the engine is asked at its first call.
 */

#include "integration/preload/newer_stubs.h"

#include <cpuid.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "integration/preload/shim.h"

enum { kStubBytes = 32 };

/* One function; created once, never freed. */
struct Newer {
  void* real;
  int version; /* as asked for */
  int lasting;
  char name[80];
};

/* The tables of newer_stubs.S. A target is read without any order: an aligned pointer is read whole, and what
 * it points at was complete before the store. */
extern const char spillway_newer_stubs[];
extern _Atomic(void*) spillway_newer_targets[SPILLWAY_NEWER_STUBS];
extern _Atomic(uint64_t) spillway_newer_calls[SPILLWAY_NEWER_STUBS];
void* ResolveNewer(unsigned place);

/* The register states that the stubs keep by xsave; written before the first stub is handed out. */
_Atomic(unsigned) spillway_newer_state;

static _Atomic(struct Newer*) newer_[SPILLWAY_NEWER_STUBS]; /* filled from the front */
static int (*_Atomic callback_)(const char* name);
static atomic_int passed_on_; /* StopAskingForNewer was called */

void SetNewerCallback(int (*callback)(const char* name)) { atomic_store(&callback_, callback); }
void StopAskingForNewer(void) { atomic_store(&passed_on_, 1); }

uint64_t NewerCalls(void) {
  uint64_t calls = 0;
  for (int i = 0; i < SPILLWAY_NEWER_STUBS && atomic_load(&newer_[i]); ++i) {
    calls += atomic_load(&spillway_newer_calls[i]);
  }
  return calls;
}

/* Returns SSE, AVX and the three states of AVX-512, as far as the operating system keeps them and they fit.
 */
static unsigned VectorStates(void) {
  enum { kSse = 1u << 1, kAvx = 1u << 2, kOpmask = 1u << 5, kUpper = 1u << 6, kHigh = 1u << 7 };
  unsigned a, b, c, d, enabled, high, states = kSse;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & bit_OSXSAVE) == 0) return 0;
  __asm__("xgetbv" : "=a"(enabled), "=d"(high) : "c"(0));
  for (unsigned state = 2; state <= 7; ++state) {
    const unsigned bit = 1u << state;
    if ((bit & (kAvx | kOpmask | kUpper | kHigh) & enabled) == 0) continue;
    if (!__get_cpuid_count(0xd, state, &a, &b, &c, &d)) continue;
    if (a + b <= SPILLWAY_NEWER_STATE_BYTES) states |= bit;
  }
  return states;
}

static struct Newer* MakeNewer(void* real, const char* name, int version, int lasting) {
  struct Newer* entry = calloc(1, sizeof(*entry));
  if (!entry) return NULL;
  entry->real = real;
  entry->version = version;
  entry->lasting = lasting;
  snprintf(entry->name, sizeof(entry->name), "%s", name);
  return entry;
}

void* NewerStub(void* real, const char* name, int version, int lasting) {
  struct Newer* mine = NULL;
  if (atomic_load(&spillway_newer_state) == 0) atomic_store(&spillway_newer_state, VectorStates());
  for (int i = 0; i < SPILLWAY_NEWER_STUBS; ++i) {
    struct Newer* there = atomic_load(&newer_[i]);
    if (!there) {
      if (!mine) mine = MakeNewer(real, name, version, lasting);
      if (!mine) return NULL;
      if (atomic_compare_exchange_strong(&newer_[i], &there, mine)) there = mine;
    }
    if (there->real != real) continue;
    if (there != mine) free(mine);
    return (void*)(uintptr_t)(spillway_newer_stubs + i * kStubBytes);
  }
  free(mine);
  return NULL;
}

static int Refused(void) { return kCudaOutOfMemory; }

/* Called from newer_stubs.S. Returns the target of this call. The names of `lasting` functions are recorded
 * whatever the engine answers, and also before there is an engine. */
void* ResolveNewer(unsigned place) {
  const struct Newer* entry = atomic_load(&newer_[place]);
  int answer = SPILLWAY_NEWER_CALL;
  if (atomic_load(&passed_on_)) {
    answer = SPILLWAY_NEWER_CALL_ALWAYS;
  } else {
    if (entry->lasting) ReportUnwrapped(entry->name, entry->version);
    int (*callback)(const char*) = atomic_load(&callback_);
    if (callback) answer = callback(entry->name);
  }
  if (answer == SPILLWAY_NEWER_REFUSE) return (void*)Refused;
  if (answer == SPILLWAY_NEWER_CALL_ALWAYS) atomic_store(&spillway_newer_targets[place], entry->real);
  return entry->real;
}
