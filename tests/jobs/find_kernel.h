/* How a test's library of kernels comes to one of them: through the driver that the process finds by its name, which is
 * the preload's, as a job's libraries do. One thread at a time. */
#ifndef SPILLWAY_TESTS_JOBS_FIND_KERNEL_H_
#define SPILLWAY_TESTS_JOBS_FIND_KERNEL_H_

#include <dlfcn.h>

typedef int (*launch_function)(void* function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                               unsigned, void* stream, void** parameters, void** extra);

/* Puts the kernel of that name, of the library's one image, and cuLaunchKernel there. The image is loaded the first
 * time. 0, or where it went wrong: -1 no driver, -2 the image, -3 the name. */
static inline int FindKernel(const char* image, const char* name, void** function, launch_function* launch) {
  static void* module;
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == 0) return -1;
  int (*const load)(void**, const void*) = (int (*)(void**, const void*))dlsym(driver, "cuModuleLoadData");
  int (*const find)(void**, void*, const char*) =
      (int (*)(void**, void*, const char*))dlsym(driver, "cuModuleGetFunction");
  if (module == 0 && load(&module, image) != 0) return -2;
  if (find(function, module, name) != 0) return -3;
  *launch = (launch_function)dlsym(driver, "cuLaunchKernel");
  return 0;
}

#endif /* SPILLWAY_TESTS_JOBS_FIND_KERNEL_H_ */
