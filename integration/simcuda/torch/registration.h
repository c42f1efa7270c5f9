// The interface of the operator library: the functions that the stand-in runtime looks up in it by name
// (operator_library.cc). It is opened when PyTorch is found in the process.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_TORCH_REGISTRATION_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_TORCH_REGISTRATION_H_

extern "C" {

// Returns the version of PyTorch that this library was compiled against, as in torch.__version__.
__attribute__((visibility("default"))) const char* simcuda_torch_built_for();

// Registers PyTorch's operators for the CUDA dispatch key and turns off the attention and convolution
// libraries that only a GPU has. Called by the stand-in runtime after dlopen; further calls do nothing.
// Returns 0, or -1 with one line on standard error if the process does not run on the stand-in driver.
__attribute__((visibility("default"))) int simcuda_torch_start();
}

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_TORCH_REGISTRATION_H_
