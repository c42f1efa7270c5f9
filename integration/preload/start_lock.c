/* The lock under which happens what happens once: filling the slots, and opening the engine. A file of its
 * own since the driver's opening and the engine's both take it, and fork waits for it. */

#include "integration/preload/shim.h"

#include <pthread.h>

static pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
static __thread int holds_; /* this thread holds mutex_ */

void LockStart(void) {
  pthread_mutex_lock(&mutex_);
  holds_ = 1;
}

void UnlockStart(void) {
  holds_ = 0;
  pthread_mutex_unlock(&mutex_);
}

int HoldsStart(void) { return holds_; }

void LockStartForFork(void) {
  if (!holds_) pthread_mutex_lock(&mutex_);
}

void UnlockStartAfterFork(void) {
  if (!holds_) pthread_mutex_unlock(&mutex_);
}
