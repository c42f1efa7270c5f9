// Host forms of layers that CUDA fuses and the CPU composes: LSTM and GRU cells, RMS norm. host_forms.cc
// lists them by the name of their op. They run on the stream's thread, below autograd, and throw the
// exceptions of the at:: functions that they are made of.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_TORCH_FUSED_FORMS_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_TORCH_FUSED_FORMS_H_

#include "integration/simcuda/torch/host_call.h"

namespace simcuda::ops {

// Each takes the arguments of its op from the stack and leaves its results there, as host_call.h describes;
// fused_forms.cc names them. The workspace of a forward form is for its own backward form alone: its layout
// need not be that of CUDA, and nobody else looks into it.
void LstmCell(const HostCall& call);
void LstmCellBackward(const HostCall& call);
void GruCell(const HostCall& call);
void GruCellBackward(const HostCall& call);
void RmsNorm(const HostCall& call);
void RmsNormBackward(const HostCall& call);

}  // namespace simcuda::ops

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_TORCH_FUSED_FORMS_H_
