/* Kernels for grouped.py, made as PyTorch's grouped GEMM is: the first writes the addresses of the groups' matrices into
 * a table in device memory, the second is given the table alone. In a library of their own, as kernels come in a job. */
#include <stdint.h>

#include "integration/simcuda/driver/simcuda.h"
#include "tests/jobs/find_kernel.h"

/* The name that PyTorch's kernel begins with, and a template argument that it does not have. PARTIAL is in no list of
 * the product's. */
#define WRITER "_ZN2at4cuda6detail25prepare_grouped_gemm_dataIfEEvPT_"
#define PARTIAL "_Z17write_group_tablePfS_S_"
#define PRODUCT "_Z15grouped_productPPfS0_S0_ll"

static const char kImage[] = SIMCUDA_IMAGE_MAGIC "\n" WRITER "\n" PARTIAL "\n" PRODUCT "\n";

static uint64_t Word(void** parameters, int index) { return *(uint64_t*)parameters[index]; }

/* Parameters 0 to 2: the matrices; 3 and 4: scales, not used; 5 to 7: the tables; 8 and 9: tables of scales;
 * 10: groups; 11: elements of a group; 12: the only group to be written, or -1. */
static void WriteTables(const simcuda_launch* launch, void** parameters) {
  const int64_t groups = (int64_t)Word(parameters, 10);
  const int64_t only = (int64_t)Word(parameters, 12);
  (void)launch;
  for (int table = 0; table < 3; ++table) {
    float* const matrix = (float*)(uintptr_t)Word(parameters, table);
    float** const words = (float**)(uintptr_t)Word(parameters, 5 + table);
    for (int64_t group = 0; group < groups; ++group) {
      if (only < 0 || only == group) words[group] = matrix + group * (int64_t)Word(parameters, 11);
    }
  }
}

/* Parameters 0 to 2: tables of addresses; 3: groups; 4: elements of a group. */
static void Product(const simcuda_launch* launch, void** parameters) {
  float** const left = (float**)(uintptr_t)Word(parameters, 0);
  float** const right = (float**)(uintptr_t)Word(parameters, 1);
  float** const out = (float**)(uintptr_t)Word(parameters, 2);
  (void)launch;
  for (uint64_t group = 0; group < Word(parameters, 3); ++group) {
    for (uint64_t i = 0; i < Word(parameters, 4); ++i)
      out[group][i] = left[group][i] * right[group][i] + 0.25f;
  }
}

/* `stand_in`: simcuda_register_kernel of the stand-in driver. 0, or where it went wrong. */
__attribute__((visibility("default"))) int grouped_register(int (*stand_in)(const simcuda_kernel*,
                                                                            struct CUfunc_st**)) {
  static simcuda_parameter words[13];
  for (int i = 0; i < 13; ++i) words[i] = (simcuda_parameter){(size_t)i * 8, 8};
  const simcuda_kernel writer = {WRITER, &WriteTables, 0, words, 13};
  const simcuda_kernel partial = {PARTIAL, &WriteTables, 0, words, 13};
  const simcuda_kernel product = {PRODUCT, &Product, 0, words, 5};
  return stand_in(&writer, 0) != 0 || stand_in(&partial, 0) != 0 || stand_in(&product, 0) != 0;
}

/* Launches a kernel through the driver that the process finds by its name: the preload's. `kind`: 0 the writer, 1 the
 * writer of one group, 2 the product. `words` are its parameters. */
__attribute__((visibility("default"))) int grouped_launch(int kind, uint64_t* words, void* stream) {
  static const char* const kNames[] = {WRITER, PARTIAL, PRODUCT};
  void* function = 0;
  launch_function run = 0;
  const int problem = FindKernel(kImage, kNames[kind], &function, &run);
  if (problem != 0) return problem;
  void* parameters[13];
  for (int i = 0; i < 13; ++i) parameters[i] = &words[i];
  return run(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, 0);
}
