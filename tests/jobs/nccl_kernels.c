/* Stand-ins for two of NCCL's kernels, for nccl.py: the names, the one parameter and the launch are NCCL's, the works
 * are simpler. An all-reduce of two ranks that hold the same: each work doubles its buffer. Where the storage type says
 * so, the works lie in a queue in host memory, and no byte of the launch shows what they name. */
#include <stdint.h>
#include <string.h>

#include "integration/simcuda/driver/simcuda.h"
#include "tests/jobs/find_kernel.h"

#define ARGUMENT_BYTES 4096
#define NAME "_Z40ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE"

struct work {
  uint64_t send;
  uint64_t receive;
  uint64_t count;
  uint64_t unused;
};

struct head {
  uint64_t comm;
  uint64_t channel_mask;
  uint8_t storage;
  uint8_t unused[3];
  uint32_t work_mask;
  const struct work* works;
  uint64_t work_count; /* in place of NCCL's batches */
  uint64_t more;
};

/* Works stay until their kernel has run: as many as a test has under way at once. */
static struct work queue[4096];
static unsigned queued;

static void AllReduce(const simcuda_launch* launch, void** parameters) {
  (void)launch;
  struct head head;
  memcpy(&head, parameters[0], sizeof(head));
  const struct work* works = head.storage == 0 ? (const struct work*)((char*)parameters[0] + sizeof(head)) : head.works;
  for (uint64_t i = 0; i < head.work_count; ++i) {
    const volatile float* const from = (const volatile float*)(uintptr_t)works[i].send;
    volatile float* const to = (volatile float*)(uintptr_t)works[i].receive;
    for (uint64_t at = 0; at < works[i].count; ++at) to[at] = 2.0f * from[at];
  }
}

/* `stand_in`: simcuda_register_kernel of the stand-in driver. */
__attribute__((visibility("default"))) int nccl_register(int (*stand_in)(const simcuda_kernel*, struct CUfunc_st**)) {
  static const simcuda_parameter kParameter = {0, ARGUMENT_BYTES};
  const simcuda_kernel kernel = {NAME, &AllReduce, 0, &kParameter, 1};
  return stand_in(&kernel, 0);
}

/* Doubles `count` floats at each of `buffers`, in one launch; the driver's answer. */
__attribute__((visibility("default"))) int nccl_all_reduce(int storage, const uint64_t* buffers, uint64_t buffer_count,
                                                           uint64_t count, void* stream) {
  static const char kImage[] = SIMCUDA_IMAGE_MAGIC "\n" NAME "\n";
  char arguments[ARGUMENT_BYTES];
  struct head head = {.channel_mask = 1, .storage = (uint8_t)storage, .work_mask = ~0u, .work_count = buffer_count};
  struct work* works = (struct work*)(arguments + sizeof(head));
  if (buffer_count > 100) return -4;
  void* function = 0;
  launch_function run = 0;
  const int problem = FindKernel(kImage, NAME, &function, &run);
  if (problem != 0) return problem;
  size_t size = sizeof(head);
  if (storage == 0) {
    size += buffer_count * sizeof(struct work);
  } else {
    works = queue + queued % (sizeof(queue) / sizeof(queue[0]) - 100);
    queued += (unsigned)buffer_count;
    head.works = works;
  }
  memset(arguments, 0, sizeof(arguments));
  memcpy(arguments, &head, sizeof(head));
  for (uint64_t i = 0; i < buffer_count; ++i) {
    const struct work work = {buffers[i], buffers[i], count, 0};
    memcpy(works + i, &work, sizeof(work));
  }
  void* extra[] = {(void*)1, arguments, (void*)2, &size, 0}; /* CU_LAUNCH_PARAM_BUFFER_POINTER, _SIZE, _END */
  return run(function, 1, 1, 1, 1, 1, 1, 0, stream, 0, extra);
}
