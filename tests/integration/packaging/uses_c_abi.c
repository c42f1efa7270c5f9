/* A program of someone else's: finds Spillway with find_package and calls the C ABI. install_test.py builds it against what
 * cmake --install put down. Without arguments it calls before CUDA is used; with one, after cuInit under the preload. */

#include <dlfcn.h>
#include <spillway/spillway.h>
#include <stdio.h>

static int StartCuda(void) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) return -1;
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
  int (*retain)(void**, int) = (int (*)(void**, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
  int (*set_current)(void*) = (int (*)(void*))dlsym(driver, "cuCtxSetCurrent");
  void* context = NULL;
  if (init(0) != 0 || retain(&context, 0) != 0) return -1;
  return set_current(context);
}

int main(int argc, char** argv) {
  (void)argv;
  const spillway_api* api = spillway_engine_api();
  printf("version=%s abi=%u\n", api->version_text, api->version);
  if (argc > 1 && StartCuda() != 0) return 1;
  void* block = NULL;
  size_t bytes = 4 << 20;
  printf("allocate=%d\n", api->allocate(0, bytes, NULL, &block));
  if (!block) return 0;
  void* base = NULL;
  size_t found = 0;
  int status = api->find_range(block, &base, &found);
  printf("owns=%d find_range=%d,%d\n", api->owns(block), status, base == block && found == bytes);
  printf("free=%d\n", api->free(block));
  return 0;
}
