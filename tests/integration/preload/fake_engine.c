/* An engine for the shim's tests: reports its calls on standard output, and wraps a few launches by adding 10000
 * to what the real ones return. FAKE_ENGINE=refuse makes it fail to open; =init makes it call cuInit itself;
 * =fork makes it fork while it opens; settings named in FAKE_ENGINE_SETTINGS are printed. FAKE_ENGINE_NEWER=N is its
 * answer for functions that no table has; with it, their calls are printed, and at the exit how many there were. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "integration/preload/shim_abi.h"

#define EXPORTED __attribute__((visibility("default")))

static const struct spillway_shim* shim_;

#define WRAPPER(symbol) \
  static int Wrapped_##symbol(void) { return ((int (*)(void))shim_->real(#symbol))() + 10000; }
WRAPPER(cuLaunchKernel)
WRAPPER(cuLaunchKernel_ptsz)
WRAPPER(cuLaunchKernelEx)
WRAPPER(cuMemcpyBatchAsync)
WRAPPER(cuMemcpyBatchAsync_v2)
WRAPPER(cuMemsetD8Async)
WRAPPER(cuMemsetD16Async)
WRAPPER(cuMemsetD32_v2)
WRAPPER(cuMemsetD8Async_ptsz)

static void Line(const char* text) {
  char line[512];
  int bytes = snprintf(line, sizeof(line), "engine: %s\n", text);
  if (write(STDOUT_FILENO, line, (size_t)bytes) < 0) abort();
}

static void OnUnwrapped(const char* name, int version) {
  char text[256];
  snprintf(text, sizeof(text), "unwrapped %s %d", name, version);
  Line(text);
}

static int OnNewer(const char* name) {
  char text[256];
  snprintf(text, sizeof(text), "newer %s", name);
  Line(text);
  return atoi(getenv("FAKE_ENGINE_NEWER"));
}

static void PrintNewerCalls(void) {
  char text[64];
  snprintf(text, sizeof(text), "newer calls %llu", (unsigned long long)shim_->newer_calls());
  Line(text);
}

static void PrintSettings(void) {
  const char* names = getenv("FAKE_ENGINE_SETTINGS");
  char* copy = names ? strdup(names) : NULL;
  for (char* name = copy ? strtok(copy, ",") : NULL; name; name = strtok(NULL, ",")) {
    const char *value = shim_->setting(name), *source = shim_->setting_source(name);
    char text[256];
    snprintf(text, sizeof(text), "setting %s=%s from %s", name, value ? value : "(none)",
             source ? source : "(none)");
    Line(text);
    const char *limit = shim_->limit(name), *limit_source = shim_->limit_source(name);
    if (!limit) continue;
    snprintf(text, sizeof(text), "limit %s=%s from %s", name, limit, limit_source);
    Line(text);
  }
  free(copy);
}

static void Install(const char* symbol, void* wrapper) {
  char text[128];
  snprintf(text, sizeof(text), "install %s %d", symbol, shim_->install(symbol, wrapper));
  if (strstr(text, " 0") == NULL) Line(text);
}

EXPORTED int spillway_engine_open(const struct spillway_shim* shim) {
  shim_ = shim;
  const char* mode = getenv("FAKE_ENGINE");
  char text[4200];
  snprintf(text, sizeof(text), "open abi=%u flags=%u", shim->abi_version, shim->flags);
  Line(text);
  if (getenv("FAKE_ENGINE_PATHS")) {
    printf("engine: driver=%s library=%s\n", shim->driver_path, shim->library_directory);
    fflush(stdout);
  }
  PrintSettings();
  if (mode && strcmp(mode, "refuse") == 0) return 1;
  shim->set_unwrapped_callback(OnUnwrapped);
  if (getenv("FAKE_ENGINE_NEWER")) {
    shim->set_newer_callback(OnNewer);
    atexit(PrintNewerCalls);
  }
  if (mode && strcmp(mode, "late") == 0) return 0; /* wrappers come with the next cuInit */
  Install("cuLaunchKernel", (void*)Wrapped_cuLaunchKernel);
  Install("cuLaunchKernel_ptsz", (void*)Wrapped_cuLaunchKernel_ptsz);
  Install("cuLaunchKernelEx", (void*)Wrapped_cuLaunchKernelEx);
  Install("cuMemcpyBatchAsync", (void*)Wrapped_cuMemcpyBatchAsync);
  Install("cuMemcpyBatchAsync_v2", (void*)Wrapped_cuMemcpyBatchAsync_v2);
  Install("cuMemsetD8Async", (void*)Wrapped_cuMemsetD8Async);
  Install("cuMemsetD16Async", (void*)Wrapped_cuMemsetD16Async);
  Install("cuMemsetD32_v2", (void*)Wrapped_cuMemsetD32_v2);
  Install("cuMemsetD8Async_ptsz", (void*)Wrapped_cuMemsetD8Async_ptsz);
  if (mode && strcmp(mode, "install") == 0) {
    Install("cuInit", (void*)Wrapped_cuLaunchKernel);
    Install("cuGetProcAddress_v2", (void*)Wrapped_cuLaunchKernel);
    Install("cuNoSuchFunction", (void*)Wrapped_cuLaunchKernel);
    Install("cuMemcpy3D", (void*)Wrapped_cuLaunchKernel);
  }
  if (mode && strcmp(mode, "init") == 0) {
    int (*init)(unsigned) = (int (*)(unsigned))shim->real("cuInit");
    if (init(0) != 0) Line("init failed");
  }
  if (mode && strcmp(mode, "fork") == 0) {
    pid_t child = fork();
    if (child == 0) _exit(0);
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) Line("fork failed");
  }
  return 0;
}

EXPORTED void spillway_engine_cu_init(void) {
  Line("cu_init");
  const char* mode = getenv("FAKE_ENGINE");
  if (mode && strcmp(mode, "late") == 0) Install("cuLaunchKernel", (void*)Wrapped_cuLaunchKernel);
}

EXPORTED void spillway_engine_fork_child(void) { Line("fork_child"); }
