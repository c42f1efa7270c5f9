/* glibc's dlopen, which lies behind the hook of the same name in trampolines.S. */

#include "integration/preload/shim.h"

#include <dlfcn.h>
#include <stdatomic.h>

void* DlopenTarget(void) {
  static _Atomic(void*) target;
  void* real = atomic_load(&target);
  if (real) return real;
  /* The next in line, which may be another interposer. If this library was loaded late into the global scope,
     it is the last one, and the first in line is the real dlopen. */
  real = dlsym(RTLD_NEXT, "dlopen");
  if (!real) real = dlsym(RTLD_DEFAULT, "dlopen");
  atomic_store(&target, real);
  return real;
}

void* RealDlopen(const char* path, int mode) {
  void* (*real)(const char*, int) = (void* (*)(const char*, int))DlopenTarget();
  return real ? real(path, mode) : NULL;
}
