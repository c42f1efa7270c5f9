// The functions of not_supported.def. NVIDIA's header is left out on purpose: the functions read no argument, so their
// prototypes do not matter, and one line each is enough.
#include "integration/simcuda/runtime/not_supported.h"

#define NOT_SUPPORTED(name) \
  extern "C" __attribute__((visibility("default"))) int name() { return simcuda::RecordNotSupported(); }
#include "integration/simcuda/runtime/not_supported.def"
#undef NOT_SUPPORTED
