/* Libraries that the probe opens, one per PLUGIN_ definition. */

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

#define EXPORTED __attribute__((visibility("default")))

#if defined(PLUGIN_CUDA) /* opens the driver by name, as a static runtime does */
EXPORTED int PluginMain(void) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
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
#endif
