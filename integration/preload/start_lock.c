/* The lock for what is done once: filling the table of driver functions, and opening the engine. It has a
 * file of its own, since the opening of the driver and that of the engine both take it, and fork waits for
 * it. */

#include "integration/preload/shim.h"

#include <pthread.h>

static pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
static __thread int locked_; /* this thread has locked mutex_ */

void LockStart(void) {
  pthread_mutex_lock(&mutex_);
  locked_ = 1;
}

void UnlockStart(void) {
  locked_ = 0;
  pthread_mutex_unlock(&mutex_);
}

int HasLockedStart(void) { return locked_; }

void LockStartForFork(void) {
  if (!locked_) pthread_mutex_lock(&mutex_);
}

void UnlockStartAfterFork(void) {
  if (!locked_) pthread_mutex_unlock(&mutex_);
}
