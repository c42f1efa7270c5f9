/* A driver for the shim's tests: a few functions that each return a number of their own, so that a test sees which
 * one was reached. Linked -Bsymbolic with the SONAME of the driver. FAKE_DRIVER_OLD leaves out what CUDA 11 lacked. */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

static int initialised_;

/* FAKE_DRIVER_INIT: what cuInit returns; FAKE_DRIVER_INIT_MS: how long it takes. */
EXPORTED int cuInit(unsigned int flags) {
  (void)flags;
  const char* wait = getenv("FAKE_DRIVER_INIT_MS");
  if (wait) usleep((unsigned)atoi(wait) * 1000);
  const char* result = getenv("FAKE_DRIVER_INIT");
  initialised_ = 1;
  return result ? atoi(result) : 0;
}

EXPORTED int cuDeviceGetCount(int* count) {
  *count = 1;
  return initialised_ ? 0 : 3;
}

EXPORTED int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}

EXPORTED int cuLaunchKernel(void) { return 4000; }
EXPORTED int cuLaunchKernel_ptsz(void) { return 7000; }
EXPORTED int cuMemcpyHtoD(void) { return 2000; }
EXPORTED int cuMemcpyHtoD_v2(void) { return 3020; }
EXPORTED int cuMemcpyHtoD_v2_ptds(void) { return 7001; }
EXPORTED int cuMemAlloc_v2(void) { return 3021; }
EXPORTED int cuDeviceGetName(void) { return 2001; }
EXPORTED int cuGetExportTable(const void** table, const void* uuid) {
  *table = uuid;
  return 3000;
}
/* Ten arguments of both kinds, six of them beyond the registers' reach in one way or the other. */
EXPORTED int cuParamSetf(long a, float b, long c, double d, long e, long f, long g, long h, double i,
                         long j) {
  return a == 1 && b == 2.5f && c == 3 && d == 4.5 && e == 5 && f == 6 && g == 7 && h == 8 && i == 9.5 &&
                 j == 10
             ? 4242
             : 1;
}
/* One function under two names, as drivers have them where nothing differs. */
EXPORTED int cuMemsetD8Async(void) { return 3200; }
EXPORTED int cuMemsetD8Async_ptsz(void) __attribute__((alias("cuMemsetD8Async")));

/* Exported, and in no table. */
EXPORTED int cuExportedOfTheFuture(void) { return 98000; }

/* Two ABIs in one. */
EXPORTED int cuMemsetD32(void) { return 3400; }
EXPORTED int cuMemsetD32_v2(void) __attribute__((alias("cuMemsetD32")));

/* Exported, while cuGetProcAddress answers with a twin. */
EXPORTED int cuMemsetD16Async(void) { return 3300; }
static int MemsetTwin(void) { return 3301; }

/* An ABI that is not exported and that no table knows, and functions that no table knows. */
static int LaunchKernelOfTheFuture(void) { return 99000; }
static int FunctionOfTheFuture(void) { return 99001; }
static int OtherOfTheFuture(void) { return 99002; }
static int QueryOfTheFuture(void) { return 99003; }
static int GetterOfTheFuture(void) { return 99004; }

/* Arguments in every register that may carry one, and on the stack. */
static int ManyOfTheFuture(long a, float b, long c, double d, long e, long f, long g, long h, double i,
                           long j, double k, double l, double m, double n, double o, double p) {
  return a == 1 && b == 2.5f && c == 3 && d == 4.5 && e == 5 && f == 6 && g == 7 && h == 8 && i == 9.5 &&
                 j == 10 && k == 11.5 && l == 12.5 && m == 13.5 && n == 14.5 && o == 15.5 && p == 16.5
             ? 4242
             : 1;
}

/* Vectors of 32 and of 64 bytes: the sum of all their elements. */
typedef double Four __attribute__((vector_size(32)));
typedef double Eight __attribute__((vector_size(64)));
#define SUM4(v) ((v)[0] + (v)[1] + (v)[2] + (v)[3])
#define SUM8(v) (SUM4(v) + (v)[4] + (v)[5] + (v)[6] + (v)[7])
__attribute__((target("avx"))) static int WideOfTheFuture(Four a, Four b, Four c, Four d, Four e, Four f,
                                                          Four g, Four h, Four on_the_stack) {
  return (int)(SUM4(a) + SUM4(b) + SUM4(c) + SUM4(d) + SUM4(e) + SUM4(f) + SUM4(g) + SUM4(h) +
               SUM4(on_the_stack));
}
__attribute__((target("avx512f"))) static int WidestOfTheFuture(Eight a, Eight b) {
  return (int)(SUM8(a) + SUM8(b));
}

/* 600 functions, more than there are stubs: each returns its number. */
__asm__(
    "        .text\n"
    "        .balign 16\n"
    "numbered_functions:\n"
    "        .set n, 0\n"
    "        .rept 600\n"
    "        .balign 16\n"
    "        endbr64\n"
    "        movl $n, %eax\n"
    "        ret\n"
    "        .set n, n + 1\n"
    "        .endr\n");
extern const char numbered_functions[] __attribute__((visibility("hidden")));

EXPORTED int cuGetProcAddress(const char* name, void** pointer, int version, uint64_t flags);

#ifndef FAKE_DRIVER_OLD
EXPORTED int cuLaunchKernelEx(void) { return 11060; }
EXPORTED int cuLaunchKernelEx_ptsz(void) { return 11061; }
EXPORTED int cuMemcpyBatchAsync(void) { return 12080; }
EXPORTED int cuMemcpyBatchAsync_v2(void) { return 13000; }
EXPORTED int cuGetProcAddress_v2(const char* name, void** pointer, int version, uint64_t flags, int* status) {
  *pointer = NULL;
  int result = cuGetProcAddress(name, pointer, version, flags);
  if (status) *status = result == 0 ? 0 : 1;
  return 0; /* what is not there is no error of this form */
}
#endif

static const struct {
  const char* name;
  int version, per_thread;
  void* function;
} kEntries[] = {
    {"cuInit", 2000, 0, (void*)cuInit},
    {"cuDriverGetVersion", 2020, 0, (void*)cuDriverGetVersion},
    {"cuGetProcAddress", 11030, 0, (void*)cuGetProcAddress},
    {"cuLaunchKernel", 4000, 0, (void*)cuLaunchKernel},
    {"cuLaunchKernel", 7000, 1, (void*)cuLaunchKernel_ptsz},
    {"cuLaunchKernel", 99000, 0, (void*)LaunchKernelOfTheFuture},
    {"cuMemcpyHtoD", 2000, 0, (void*)cuMemcpyHtoD},
    {"cuMemcpyHtoD", 3020, 0, (void*)cuMemcpyHtoD_v2},
    {"cuMemcpyHtoD", 7000, 1, (void*)cuMemcpyHtoD_v2_ptds},
    {"cuMemAlloc", 3020, 0, (void*)cuMemAlloc_v2},
    {"cuDeviceGetName", 2000, 0, (void*)cuDeviceGetName},
    {"cuMemsetD8Async", 3020, 0, (void*)cuMemsetD8Async},
    {"cuMemsetD8Async", 7000, 1, (void*)cuMemsetD8Async_ptsz},
    {"cuMemsetD32", 2000, 0, (void*)cuMemsetD32},
    {"cuMemsetD32", 3020, 0, (void*)cuMemsetD32_v2},
    {"cuMemsetD16Async", 3020, 0, (void*)MemsetTwin},
    {"cuFunctionOfTheFuture", 99000, 0, (void*)FunctionOfTheFuture},
    {"cuOtherOfTheFuture", 99000, 0, (void*)OtherOfTheFuture},
    {"cuDeviceGetName", 99000, 0, (void*)QueryOfTheFuture},
    {"cuGetTableOfTheFuture", 99000, 0, (void*)GetterOfTheFuture},
    {"cuManyOfTheFuture", 99000, 0, (void*)ManyOfTheFuture},
    {"cuWideOfTheFuture", 99000, 0, (void*)WideOfTheFuture},
    {"cuWidestOfTheFuture", 99000, 0, (void*)WidestOfTheFuture},
#ifndef FAKE_DRIVER_OLD
    {"cuGetProcAddress", 12000, 0, (void*)cuGetProcAddress_v2},
    {"cuLaunchKernelEx", 11060, 0, (void*)cuLaunchKernelEx},
    {"cuLaunchKernelEx", 11060, 1, (void*)cuLaunchKernelEx_ptsz},
    {"cuMemcpyBatchAsync", 12080, 0, (void*)cuMemcpyBatchAsync},
    {"cuMemcpyBatchAsync", 13000, 0, (void*)cuMemcpyBatchAsync_v2},
#endif
};

int cuGetProcAddress(const char* name, void** pointer, int version, uint64_t flags) {
  int per_thread = (flags & 2) != 0, best = -1;
  if (strncmp(name, "cuNumbered", 10) == 0) {
    *pointer = (void*)(uintptr_t)(numbered_functions + 16 * atoi(name + 10));
    return 0;
  }
  for (int i = 0; i < (int)(sizeof(kEntries) / sizeof(kEntries[0])); ++i) {
    if (strcmp(kEntries[i].name, name) != 0 || kEntries[i].version > version) continue;
    if (kEntries[i].per_thread > per_thread) continue;
    if (best < 0 || kEntries[i].per_thread > kEntries[best].per_thread ||
        (kEntries[i].per_thread == kEntries[best].per_thread &&
         kEntries[i].version > kEntries[best].version)) {
      best = i;
    }
  }
  if (best < 0) return 500;
  *pointer = kEntries[best].function;
  return 0;
}
