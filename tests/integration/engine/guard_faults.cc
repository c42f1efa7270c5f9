// Preloaded by guards_test.py: makes memory or a lock fail once, inside one call of the engine's C table, and
// tells whether an exception came out of it. And it refuses one thread of the process.

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "integration/engine/spillway.h"

namespace {

enum Kind : int { kNothing = 0, kMemory = 1, kLock = 2 };
// Initial-exec: reading them may ask for no memory itself.
__attribute__((tls_model("initial-exec"))) thread_local Kind armed = kNothing;
__attribute__((tls_model("initial-exec"))) thread_local int left = 0;  // until the one that fails

bool Fails(Kind kind) {
  if (armed != kind || --left > 0) return false;
  armed = kNothing;
  return true;
}

std::atomic<int> threads_left{0};  // until the one that is refused; 0: none is

constexpr int kEscaped = -1;
constexpr int kUnknownName = -2;

int Call(const spillway_api* api, const std::string& name, void* block) {
  void* fresh = nullptr;
  size_t bytes = 0, needed = 0;
  char text[64];
  spillway_device_stats stats;
  if (name == "allocate") return api->allocate(0, 4 << 20, nullptr, &fresh);
  if (name == "free") return api->free(block);
  if (name == "record_stream") return api->record_stream(block, nullptr);
  if (name == "owns") return api->owns(block);
  if (name == "find_range") return api->find_range(block, &fresh, &bytes);
  if (name == "empty_cache") return api->empty_cache(0);
  if (name == "memory_info") return api->memory_info(0, &bytes, &needed);
  if (name == "device_stats") return api->device_stats(0, &stats);
  if (name == "last_error") return api->last_error() == nullptr ? 1 : 0;
  if (name == "stats_json") return api->stats_json(text, sizeof(text), &needed);
  if (name == "last_refusal") return api->last_refusal(text, sizeof(text), &needed);
  if (name == "reserved_bytes") return api->reserved_bytes(0, &bytes, &needed);
  if (name == "mark_iteration") return api->mark_iteration();
  if (name == "take_refused_call") return api->take_refused_call();
  if (name == "device_bytes") return api->device_bytes(0, &bytes);
  return kUnknownName;
}

}  // namespace

extern "C" {

void* __libc_malloc(size_t bytes);

// The engine's operator new is its own and asks here: null is what makes it throw.
void* malloc(size_t bytes) {
  if (!Fails(kMemory)) return __libc_malloc(bytes);
  errno = ENOMEM;
  return nullptr;
}

int pthread_mutex_lock(pthread_mutex_t* mutex) {
  using Lock = int (*)(pthread_mutex_t*);
  static Lock real = nullptr;  // the same whoever writes it
  if (real == nullptr) real = reinterpret_cast<Lock>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  return Fails(kLock) ? EINVAL : real(mutex);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                   void* argument) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const Create real = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  if (threads_left.load() > 0 && threads_left.fetch_sub(1) == 1) return EAGAIN;
  return real(thread, attributes, body, argument);
}

// Refuses the nth thread from now on. The number of threads that are still to come before it; 0: it was
// refused.
void refuse_thread(int nth) { threads_left.store(nth); }
int threads_to_come() { return threads_left.load(); }

// The result of the call `name` in which the nth memory or lock is refused. `fired`: whether there was an
// nth.
int faulty_call(const spillway_api* api, const char* name, void* block, int kind, int nth, int* fired) {
  const std::string which = name;
  left = nth;
  armed = static_cast<Kind>(kind);
  int result = kEscaped;
  try {
    result = Call(api, which, block);
  } catch (...) {  // what a test is there to find
  }
  *fired = kind != kNothing && armed == kNothing ? 1 : 0;
  armed = kNothing;
  return result;
}

}  // extern "C"
