// Opens PyTorch's operators for the stand-in (libsimcuda_torch_<minor>.so, beside this library) in processes
// that have loaded libtorch_cuda. Owns the decision and the messages; the library's work is its own affair.
//
// The library may export, in C:
//   const char* simcuda_torch_built_for(void);  the version of PyTorch that it was compiled against ("2.11.0+cu130")
//   int simcuda_torch_start(void);              registers the operators; 0, or it has printed why not on standard error
// If it exports both, no other code of it runs before the versions have been compared; otherwise its
// constructors do the work.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_RUNTIME_OPERATOR_LIBRARY_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_RUNTIME_OPERATOR_LIBRARY_H_

namespace simcuda {

// Called after every successful cudaGetDeviceCount; acts at the first one that finds libtorch_cuda in the
// process. Other threads wait until the operators are registered; the library's own calls (from the same
// thread) do not.
void OpenOperatorLibraryOnce();

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_RUNTIME_OPERATOR_LIBRARY_H_
