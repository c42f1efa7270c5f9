/* A definition of every public driver function, for those that the stand-in does not implement: it returns
 * CUDA_ERROR_NOT_SUPPORTED. Weak, so that the real definitions win. Includes no cuda.h: the stubs take no notice of
 * their arguments, which the calling convention allows. */
#define SIMCUDA_NOT_SUPPORTED 801

#define DRIVER_FUNCTION(symbol, name, version, form)             \
  __attribute__((weak, visibility("default"))) int symbol(void); \
  int symbol(void) { return SIMCUDA_NOT_SUPPORTED; }
#include "allocator/driver/driver_functions.def"
