/* The marker by which a copy of the shim is recognized (a driver search must not take one for the driver),
   and the calls for loaders that bring the shim in without LD_PRELOAD, when the dlopen hook sees nothing. */

#include "integration/preload/shim.h"

#define EXPORTED __attribute__((visibility("default")))

EXPORTED const char spillway_version[] = SPILLWAY_VERSION;

/* Takes our keys out of PyTorch's variables now (before PyTorch is loaded). Returns nothing and cannot fail.
 */
EXPORTED void spillway_take_conf(void) { TakeConf(); }

/* Takes over a driver that is in the process already: RebindDriver in shim.h. */
EXPORTED long spillway_rebind(char* why, size_t bytes) { return RebindDriver(why, bytes); }

/* Returns a setting of the environment as it would be read now, or as it was fixed at the first use of CUDA;
   NULL if there is none. Settings in files are left out: they do not contradict a caller that wants to set
   something else. */
EXPORTED const char* spillway_setting(const char* name) { return OwnSetting(name); }
EXPORTED const char* spillway_setting_source(const char* name) { return SettingSource(name); }
