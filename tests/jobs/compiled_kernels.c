/* Host forms of kernels that calls.py compiles while it runs. Where their parameters lie is in the image that names them:
 * the C source of each is in calls_script.py. */
#include <stdint.h>
#include <string.h>

#include "integration/simcuda/driver/simcuda.h"

/* (left, right, { out, { scale, count } }): a structure by value behind two pointers. */
typedef struct scaled_place {
  float* out;
  float scale;
  int count;
} scaled_place;

static void ScaledSum(const simcuda_launch* launch, void** parameters) {
  const float* const left = *(const float**)parameters[0];
  const float* const right = *(const float**)parameters[1];
  scaled_place place;
  (void)launch;
  memcpy(&place, parameters[2], sizeof(place));
  for (int i = 0; i < place.count; ++i) place.out[i] = left[i] * place.scale + right[i];
}

/* (flag, pointer, count): the pointer's place follows from its alignment. */
static void Halve(const simcuda_launch* launch, void** parameters) {
  const char flag = *(const char*)parameters[0];
  float* const values = *(float**)parameters[1];
  const unsigned short blocks = *(const unsigned short*)parameters[2];
  (void)launch;
  for (unsigned i = 0; flag && i < blocks * 1024u; ++i) values[i] *= 0.5f;
}

/* PyTorch's jiterator: (count, { out, left, right }) of a function that it was given as text. */
static void Jitted(const simcuda_launch* launch, void** parameters) {
  const int count = *(const int*)parameters[0];
  float* data[3];
  (void)launch;
  memcpy(data, parameters[1], sizeof(data));
  for (int i = 0; i < count; ++i) data[0][i] = data[1][i] * 3.0f - data[2][i];
}

/* `stand_in`: simcuda_register_kernel of the stand-in driver. 0, or where it went wrong. */
__attribute__((visibility("default"))) int compiled_register(int (*stand_in)(const simcuda_kernel*,
                                                                             struct CUfunc_st**)) {
  const simcuda_kernel kernels[] = {
      {"scaled_sum", &ScaledSum, 0, 0, SIMCUDA_LAYOUT_OF_IMAGE},
      {"_Z5halvecPft", &Halve, 0, 0, SIMCUDA_LAYOUT_OF_IMAGE},
      {"triple_minus_vectorized4_kernel", &Jitted, 0, 0, SIMCUDA_LAYOUT_OF_IMAGE},
      {"triple_minus_vectorized8_kernel", &Jitted, 0, 0, SIMCUDA_LAYOUT_OF_IMAGE},
  };
  for (unsigned i = 0; i < sizeof(kernels) / sizeof(kernels[0]); ++i) {
    if (stand_in(&kernels[i], 0) != 0) return (int)i + 1;
  }
  return 0;
}
