/* Libraries that the probe opens, one per PLUGIN_ definition. */

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#define EXPORTED __attribute__((visibility("default")))

#if defined(PLUGIN_CUDA) /* opens the driver by name, as a static runtime does */
EXPORTED int PluginMain(void) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver || ((int (*)(unsigned))dlsym(driver, "cuInit"))(0) != 0) return -1;
  return ((int (*)(void))dlsym(driver, "cuLaunchKernel"))();
}
#elif defined(PLUGIN_GLIBC) /* refers to the loader's functions as programs linked against that glibc do */
__asm__(".symver dlopen, dlopen@" PLUGIN_GLIBC "\n.symver dlsym, dlsym@" PLUGIN_GLIBC);
EXPORTED int PluginMain(void) {
  void* driver = dlopen(getenv("PLUGIN_DRIVER"), RTLD_NOW);
  if (!driver || ((int (*)(unsigned))dlsym(driver, "cuInit"))(0) != 0) return -1;
  return ((int (*)(void))dlsym(driver, "cuLaunchKernel"))();
}
#elif defined(PLUGIN_CONSTRUCTOR)
/* Uses the driver in its constructor, where the loader's lock is held. */
static int launch_;
__attribute__((constructor)) static void Start(void) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver || ((int (*)(unsigned))dlsym(driver, "cuInit"))(0) != 0) return;
  launch_ = ((int (*)(void))dlsym(driver, "cuLaunchKernel"))();
}
EXPORTED int PluginMain(void) { return launch_; }
#elif defined(PLUGIN_RUNPATH)
/* Opens its neighbour by bare name: found through its own RUNPATH of $ORIGIN only. */
EXPORTED int PluginMain(void) {
  void* sibling = dlopen("libpreload_sibling.so", RTLD_NOW);
  if (!sibling) fprintf(stderr, "%s\n", dlerror());
  return sibling ? ((int (*)(void))dlsym(sibling, "SiblingMain"))() : -1;
}
#elif defined(PLUGIN_SIBLING)
EXPORTED int SiblingMain(void) { return 77; }
#elif defined(PLUGIN_INTERPOSER) /* a second preload with a dlopen of its own, as other tools have */
EXPORTED void* dlopen(const char* path, int mode) {
  static void* (*next)(const char*, int);
  if (!next) next = (void* (*)(const char*, int))dlsym(RTLD_NEXT, "dlopen");
  fprintf(stdout, "interposer: %s\n", path ? path : "(self)");
  fflush(stdout);
  return next(path, mode);
}
#elif defined(PLUGIN_WSL)        /* the kernel's name as WSL has it */
EXPORTED int uname(struct utsname* machine) {
  memset(machine, 0, sizeof(*machine));
  strcpy(machine->sysname, "Linux");
  strcpy(machine->release, "5.15.90.1-microsoft-standard-WSL2");
  strcpy(machine->machine, getenv("PLUGIN_MACHINE") ? getenv("PLUGIN_MACHINE") : "x86_64");
  return 0;
}
#elif defined(PLUGIN_DLSYM) /* a second preload that overrides dlsym, as tools do that know no better way */
EXPORTED void* dlsym(void* library, const char* name) {
  static void* (*real)(void*, const char*);
  if (!real) {
    real = (void* (*)(void*, const char*))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (!real) real = (void* (*)(void*, const char*))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
  }
  if (strcmp(name, "cuLaunchKernel") == 0) {
    fprintf(stdout, "interposer: %s\n", name);
    fflush(stdout);
  }
  return real(library, name);
}
#endif
