// Look-up in the table of all driver functions (driver_functions.def), for cuGetProcAddress. It never uses
// dlsym: a preload that stands before this driver would be asked for our names. Thread-safe; no call fails.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_API_GET_PROC_ADDRESS_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_API_GET_PROC_ADDRESS_H_

namespace simcuda {

struct LookUp {
  void* address = nullptr;
  bool name_known = false;  // address null: the version asked for is older than the function
};

// Returns the entry that `name` means for a program of CUDA `version`: the newest that is not newer, in the
// per-thread form if that is asked for and exists.
LookUp FindDriverFunction(const char* name, int version, bool per_thread);

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_API_GET_PROC_ADDRESS_H_
