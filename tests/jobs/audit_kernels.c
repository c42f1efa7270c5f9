/* Two kernels for the audit's test: one stores an address in device memory, the other follows it, so that no parameter
 * of its launch shows what it touches. In a library of their own, as kernels come in a job; their image is in it. */
#include <stdint.h>

#include "integration/simcuda/driver/simcuda.h"
#include "tests/jobs/find_kernel.h"

static const char kImage[] = SIMCUDA_IMAGE_MAGIC "\n_Z12store_targetPmS_\n_Z13follow_targetPm\n";

static void StoreTarget(const simcuda_launch* launch, void** parameters) {
  (void)launch;
  **(uint64_t* volatile*)parameters[0] = *(uint64_t*)parameters[1];
}

static void FollowTarget(const simcuda_launch* launch, void** parameters) {
  (void)launch;
  uint64_t* const table = *(uint64_t**)parameters[0];
  volatile float* const target = (volatile float*)(uintptr_t)table[0];
  *target += 1.0f;
}

/* `stand_in`: simcuda_register_kernel of the stand-in driver. 0, or where it went wrong. */
__attribute__((visibility("default"))) int audit_register(int (*stand_in)(const simcuda_kernel*,
                                                                          struct CUfunc_st**)) {
  static const simcuda_parameter kParameters[] = {{0, 8}, {8, 8}};
  const simcuda_kernel store = {"_Z12store_targetPmS_", &StoreTarget, 0, kParameters, 2};
  const simcuda_kernel follow = {"_Z13follow_targetPm", &FollowTarget, 0, kParameters, 1};
  return stand_in(&store, 0) != 0 || stand_in(&follow, 0) != 0;
}

/* Launches the kernel of that name through the driver that the process finds by its name: the preload's. */
__attribute__((visibility("default"))) int audit_launch(const char* name, uint64_t first, uint64_t second,
                                                        void* stream) {
  void* function = 0;
  launch_function run = 0;
  const int problem = FindKernel(kImage, name, &function, &run);
  if (problem != 0) return problem;
  void* parameters[] = {&first, &second};
  return run(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, 0);
}
