// Host forms of layers that CUDA fuses and the CPU composes: LSTM and GRU cells, RMS norm. See host_forms.h.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_TORCH_FUSED_FORMS_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_TORCH_FUSED_FORMS_H_

#include "integration/simcuda/torch/host_call.h"

namespace simcuda::ops {

void LstmCell(const HostCall& call);
void LstmCellBackward(const HostCall& call);
void GruCell(const HostCall& call);
void GruCellBackward(const HostCall& call);
void RmsNorm(const HostCall& call);
void RmsNormBackward(const HostCall& call);

}  // namespace simcuda::ops

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_TORCH_FUSED_FORMS_H_
