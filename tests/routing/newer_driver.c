/* A driver that is newer than Spillway, over the stand-in driver: all of its functions are there (the test gives a copy
 * of it the name that this library needs, so that look-ups by symbol find them), and look-ups by name may answer
 * with a function that no table of ours has.
 *   NEWER_DRIVER=must     for cuLaunchKernel, another ABI of its own (which works)
 *   NEWER_DRIVER=unknown  for cuLaunchKernelOfTheFuture, which a runtime might ask for */

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

typedef int (*GetProc2)(const char*, void**, int, uint64_t, int*);

static void* Below(const char* name) {
  void* driver = dlopen("libcudb.so.1", RTLD_NOW | RTLD_NOLOAD);
  return driver ? dlsym(driver, name) : NULL;
}

typedef int (*Launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                      void**, void**);

static int NewLaunch(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                     unsigned shared, void* stream, void** parameters, void** extra) {
  return ((Launch)Below("cuLaunchKernel"))(f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra);
}

static int Answer(const char* name, void** pointer) {
  const char* mode = getenv("NEWER_DRIVER");
  if (!mode || !name) return 0;
  if (strcmp(mode, "must") == 0 && strcmp(name, "cuLaunchKernel") == 0) {
    *pointer = (void*)NewLaunch;
    return 1;
  }
  if (strcmp(mode, "unknown") == 0 && strcmp(name, "cuLaunchKernelOfTheFuture") == 0) {
    *pointer = (void*)NewLaunch;
    return 1;
  }
  return 0;
}

EXPORTED int cuGetProcAddress_v2(const char* name, void** pointer, int version, uint64_t flags, int* status) {
  if (pointer && Answer(name, pointer)) {
    if (status) *status = 0;
    return 0;
  }
  int result = ((GetProc2)Below("cuGetProcAddress_v2"))(name, pointer, version, flags, status);
  /* Of itself it must be found here, not below. */
  if (result == 0 && strcmp(name, "cuGetProcAddress") == 0 && version >= 12000)
    *pointer = (void*)cuGetProcAddress_v2;
  return result;
}
