/* The marker by which a copy of the shim is known (a driver search must not take one for the driver), and the
 * call for loaders that bring the shim in without LD_PRELOAD, where the dlopen hook sees nothing. */

#include "integration/preload/shim.h"

#define EXPORTED __attribute__((visibility("default")))

EXPORTED const char spillway_version[] = SPILLWAY_VERSION;

/* Takes our keys out of PyTorch's variables now (before PyTorch is loaded). Returns nothing, fails never. */
EXPORTED void spillway_take_conf(void) { TakeConf(); }
