/* What the programs of the shim's tests share: opening a library, calling its functions by name, printing
 * results as name=value, a line each, for a Python test to read. What is missing ends the program with
 * status 3. */

#ifndef SPILLWAY_TESTS_INTEGRATION_PRELOAD_PROBE_H_
#define SPILLWAY_TESTS_INTEGRATION_PRELOAD_PROBE_H_

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef int (*Function)(void);
typedef int (*Init)(unsigned int);
typedef int (*GetProc)(const char*, void**, int, uint64_t);
typedef int (*GetProc2)(const char*, void**, int, uint64_t, int*);

static inline void Print(const char* name, int value) {
  printf("%s=%d\n", name, value);
  fflush(stdout);
}

static inline void* Need(void* pointer, const char* what) {
  if (!pointer) {
    const char* why = dlerror();
    printf("missing %s: %s\n", what, why ? why : "");
    exit(3);
  }
  return pointer;
}

static inline void* Open(const char* name) { return Need(dlopen(name, RTLD_NOW | RTLD_LOCAL), name); }
static inline void* Symbol(void* library, const char* name) { return Need(dlsym(library, name), name); }
static inline int CallInit(void* library) { return ((Init)Symbol(library, "cuInit"))(0); }
static inline int Call(void* library, const char* name) { return ((Function)Symbol(library, name))(); }

static inline void Ask(GetProc get, const char* name, int version, uint64_t flags) {
  void* pointer = NULL;
  int result = get(name, &pointer, version, flags);
  printf("%s.%d.%d=%d\n", name, version, (int)flags, result ? -result : ((Function)pointer)());
  fflush(stdout);
}

#endif /* SPILLWAY_TESTS_INTEGRATION_PRELOAD_PROBE_H_ */
