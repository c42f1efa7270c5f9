/* Stand-ins for three kernels of batched torch.linalg, for linalg.py, with the names and parameters of PyTorch's: arange,
 * which writes the addresses of matrices into a table; one of MAGMA's, whose table lies in pinned memory; and one that no
 * list has, as cuSOLVER's, which is given the table alone. The library has the file name of the one that MAGMA is in. */
#include <stdint.h>

#include "integration/simcuda/driver/simcuda.h"
#include "tests/jobs/find_kernel.h"

#define ARANGE                                                                        \
  "_ZN50_GLOBAL__N__fa15d16e_17_RangeFactories_cu_38772b0829elementwise_kernel_with_" \
  "indexIlZZZN2at6native15arange_cuda_outERKN3c106ScalarES6_S6_RNS1_6TensorEENKUlvE_" \
  "clEvENKUlvE3_clEvEUllE_EEvT_T0_PN15function_traitsISD_E11result_typeE"
#define MAGMA "_Z27sgetf2_nopiv_batched_kernelILi32ELi32EEviPPfiiiPiii"
#define FOLLOWER "_Z16potrf_of_a_tablePPfll"

static const char kImage[] = SIMCUDA_IMAGE_MAGIC "\n" ARANGE "\n" MAGMA "\n" FOLLOWER "\n";

/* 0: count; 1: first number and step; 2: where they go. */
static void Arange(const simcuda_launch* launch, void** parameters) {
  const int64_t* const range = parameters[1];
  int64_t* const out = *(int64_t**)parameters[2];
  (void)launch;
  for (int64_t i = 0; i < *(int64_t*)parameters[0]; ++i) out[i] = range[0] + i * range[1];
}

/* 0: table of matrices; 1: how many; 2: elements of each. Halves each and adds its number. */
static void Halve(const simcuda_launch* launch, void** parameters) {
  float** const matrices = *(float***)parameters[0];
  (void)launch;
  for (int64_t at = 0; at < *(int64_t*)parameters[1]; ++at) {
    for (int64_t i = 0; i < *(int64_t*)parameters[2]; ++i)
      matrices[at][i] = 0.5f * matrices[at][i] + (float)at;
  }
}

/* `stand_in`: simcuda_register_kernel of the stand-in driver. 0, or where it went wrong. */
__attribute__((visibility("default"))) int linalg_register(int (*stand_in)(const simcuda_kernel*,
                                                                           struct CUfunc_st**)) {
  static const simcuda_parameter kRange[] = {{0, 8}, {8, 16}, {24, 8}};
  static const simcuda_parameter kTable[] = {{0, 8}, {8, 8}, {16, 8}};
  const simcuda_kernel arange = {ARANGE, &Arange, 0, kRange, 3};
  const simcuda_kernel magma = {MAGMA, &Halve, 0, kTable, 3};
  const simcuda_kernel follower = {FOLLOWER, &Halve, 0, kTable, 3};
  return stand_in(&arange, 0) != 0 || stand_in(&magma, 0) != 0 || stand_in(&follower, 0) != 0;
}

/* Launches a kernel through the driver that the process finds by its name: the preload's. `kind`: 0 arange, 1 MAGMA's,
 * 2 the follower. `words` are its parameters' bytes. */
__attribute__((visibility("default"))) int linalg_launch(int kind, uint64_t* words, void* stream) {
  static const char* const kNames[] = {ARANGE, MAGMA, FOLLOWER};
  void* function = 0;
  launch_function run = 0;
  const int problem = FindKernel(kImage, kNames[kind], &function, &run);
  if (problem != 0) return problem;
  void* parameters[] = {&words[0], &words[1], &words[kind == 0 ? 3 : 2]};
  return run(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, 0);
}
