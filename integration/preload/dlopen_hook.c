/* The filter of the dlopen hook; the hook itself is the tail jump in trampolines.S. It closes the two gaps of
 * the SONAME: a driver opened by path, or by the development name libcuda.so. It also sees PyTorch come. It
 * takes our keys out of PyTorch's variables before PyTorch's load-time parser reads them, and has the engine
 * look for PyTorch once that is there. */

#include "integration/preload/shim.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static const char kDriverName[] = "libcuda.so.1";

static atomic_int torch_opens_; /* PyTorch's libraries have been opened since the engine's last search */

/* Returns whether the file is an extension module of Python's. The libraries that constructors open are none,
 * so all constructors of PyTorch's have run when such a module is opened after them. */
static int IsPythonModule(const char* base) {
  return strncmp(base, "lib", 3) != 0 && strstr(base, ".so") != NULL;
}

/* Returns whether the file brings libc10_cuda with it, whose static initializers parse the variables: the
 * library that `import torch` opens first, the extension module, and those that C++ programs open. */
static int BringsTorch(const char* path, const char* base) {
  static const char* const kLibraries[] = {"libtorch_global_deps.so", "libtorch_python.so", "libtorch.so",
                                           "libtorch_cuda.so", "libc10_cuda.so"};
  for (size_t i = 0; i < sizeof(kLibraries) / sizeof(kLibraries[0]); ++i) {
    if (strcmp(base, kLibraries[i]) == 0) return 1;
  }
  return strncmp(base, "_C.", 3) == 0 && strstr(path, "/torch/_C.") != NULL;
}

static int IsDriver(const char* base) {
  return strcmp(base, kDriverName) == 0 || strcmp(base, "libcuda.so") == 0;
}

const char* DlopenName(const char* path) {
  if (!path) return path;
  const char* slash = strrchr(path, '/');
  const char* base = slash ? slash + 1 : path;
  if (BringsTorch(path, base)) {
    TakeConf();
    atomic_store(&torch_opens_, 1);
    return path;
  }
  if (atomic_load_explicit(&torch_opens_, memory_order_relaxed) && IsPythonModule(base) &&
      atomic_exchange(&torch_opens_, 0)) {
    FindTorch();
  }
  if (!IsDriver(base) || SwitchedOff()) return path;
  if (!slash) return kDriverName;
  if (access(path, F_OK) != 0) return path; /* let it fail, as the caller may expect */
  RememberDriverHint(path);
  return kDriverName;
}

void* DlmopenTarget(const char* path) {
  static atomic_int reported;
  const char* slash = path ? strrchr(path, '/') : NULL;
  if (path && IsDriver(slash ? slash + 1 : path) && !SwitchedOff() && !atomic_exchange(&reported, 1)) {
    LogLine("dlmopen opens ", path, " in a namespace of its own: calls of that driver are not seen", NULL);
  }
  void* real = dlsym(RTLD_NEXT, "dlmopen");
  return real ? real : dlsym(RTLD_DEFAULT, "dlmopen");
}
