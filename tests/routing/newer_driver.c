/* A driver that is newer than Spillway, over the stand-in driver: all of its functions are there (the test gives a copy
 * of it the name that this library needs, so that look-ups by symbol find them), and look-ups by name may answer
 * with a function that no table of ours has.
 *   NEWER_DRIVER=must      for cuLaunchKernel, another ABI of its own (which works)
 *   NEWER_DRIVER=graphs    for the newest forms of cuGraphAddNode and cuGraphNodeSetParams, other ABIs
 *   NEWER_DRIVER=invented  for cuReadOfTheFuture, which reads blocks whose addresses lie in host memory
 *   NEWER_DRIVER=tables    cuGetExportTable gives out tables, all of whose functions return 0 */

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

static int NewAddNode(void* node, void* graph, const void* dependencies, const void* edges, size_t count,
                      void* parameters) {
  typedef int (*AddNode)(void*, void*, const void*, const void*, size_t, void*);
  return ((AddNode)Below("cuGraphAddNode_v2"))(node, graph, dependencies, edges, count, parameters);
}

static int NewSetParams(void* node, void* parameters) {
  return ((int (*)(void*, void*))Below("cuGraphNodeSetParams"))(node, parameters);
}

/* The sum of the first floats of the blocks. */
static int Read(const uint64_t* blocks, int count, double* sum) {
  *sum = 0;
  for (int i = 0; i < count; ++i) *sum += *(const volatile float*)blocks[i];
  return 0;
}

static const struct {
  const char* mode;
  const char* name;
  int version;
  void* function;
} kNew[] = {
    {"must", "cuLaunchKernel", 0, (void*)NewLaunch},
    {"graphs", "cuGraphAddNode", 13040, (void*)NewAddNode},
    {"graphs", "cuGraphNodeSetParams", 13040, (void*)NewSetParams},
    {"invented", "cuReadOfTheFuture", 0, (void*)Read},
};

static int IsMode(const char* mode) {
  const char* wanted = getenv("NEWER_DRIVER");
  return wanted && strcmp(wanted, mode) == 0;
}

static int Answer(const char* name, int version, void** pointer) {
  for (size_t i = 0; name && i < sizeof(kNew) / sizeof(kNew[0]); ++i) {
    if (strcmp(kNew[i].name, name) != 0 || version < kNew[i].version || !IsMode(kNew[i].mode)) continue;
    *pointer = kNew[i].function;
    return 1;
  }
  return 0;
}

static int Nothing(void) { return 0; }

EXPORTED int cuGetExportTable(const void** table, const void* id) {
  enum { kSlots = 512 };
  static void* slots[kSlots];
  if (!IsMode("tables") || !table) {
    return ((int (*)(const void**, const void*))Below("cuGetExportTable"))(table, id);
  }
  for (int i = 1; i < kSlots; ++i) slots[i] = (void*)Nothing;
  slots[0] = (void*)sizeof(slots); /* its size, as tables begin */
  *table = slots;
  return 0;
}

EXPORTED int cuGetProcAddress_v2(const char* name, void** pointer, int version, uint64_t flags, int* status) {
  if (pointer && Answer(name, version, pointer)) {
    if (status) *status = 0;
    return 0;
  }
  int result = ((GetProc2)Below("cuGetProcAddress_v2"))(name, pointer, version, flags, status);
  /* Of itself it must be found here, not below. */
  if (result == 0 && strcmp(name, "cuGetProcAddress") == 0 && version >= 12000)
    *pointer = (void*)cuGetProcAddress_v2;
  if (result == 0 && strcmp(name, "cuGetExportTable") == 0) *pointer = (void*)cuGetExportTable;
  return result;
}
