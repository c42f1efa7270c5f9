// Look-up in the table of all driver functions (driver_functions.def), for cuGetProcAddress. Never by dlsym:
// a preload that stands before this driver would be asked for our names. Any thread; nothing fails.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_API_GET_PROC_ADDRESS_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_API_GET_PROC_ADDRESS_H_

namespace simcuda {

struct LookUp {
  void* address = nullptr;
  bool name_known = false;  // address null: the version asked for is older than the function
};

// The entry that `name` means for a program of CUDA `version`: the newest that is not newer, in the per-thread
// form when asked for and there is one.
LookUp FindDriverFunction(const char* name, int version, bool per_thread);

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_API_GET_PROC_ADDRESS_H_
