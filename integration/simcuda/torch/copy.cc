// Choosing between the driver's copies and a launch.
#include "integration/simcuda/torch/copy.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/copy_native.h>

#include "integration/simcuda/torch/cuda_operator.h"

namespace simcuda::ops {
namespace {

// The condition under which PyTorch's CUDA copy is one memcpy: same bytes in the same order.
bool IsPlain(const at::Tensor& self, const at::Tensor& src) {
  if (self.scalar_type() != src.scalar_type() || self.sizes() != src.sizes()) return false;
  if (self.is_conj() != src.is_conj() || self.is_neg() != src.is_neg()) return false;
  if (self.is_contiguous() && src.is_contiguous()) return true;
  return self.strides() == src.strides() && self.is_non_overlapping_and_dense();
}

// PyTorch would copy strided tensors across devices with a kernel that reads the peer; ours sees one device only.
void CopyAcrossDevices(at::Tensor& self, const at::Tensor& src, bool non_blocking) {
  if (IsPlain(self, src)) {
    at::native::copy_(self, src, non_blocking);
    return;
  }
  const at::Tensor here =
      src.to(self.scalar_type()).expand(self.sizes()).contiguous().resolve_conj().resolve_neg();
  at::Tensor there = at::empty_like(here, self.options(), at::MemoryFormat::Contiguous);
  at::native::copy_(there, here, non_blocking);
  self.copy_(there, non_blocking);
}

}  // namespace

void CallCopy(const OpFacts& facts, c10::Stack* stack) {
  const size_t first = stack->size() - 3;
  at::Tensor self = (*stack)[first].toTensor();
  const at::Tensor src = (*stack)[first + 1].toTensor();
  const bool non_blocking = (*stack)[first + 2].toBool();
  TORCH_CHECK(self.defined() && src.defined(), "copy_: self and src must be defined");
  const bool strided = self.layout() == at::kStrided && src.layout() == at::kStrided;
  const bool on_device = strided && self.is_cuda() && src.is_cuda();
  if (on_device && self.device() == src.device() && !self.is_same(src) && !IsPlain(self, src)) {
    return CallAsLaunch(facts, stack);
  }
  {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    if (on_device && self.device() != src.device()) {
      CopyAcrossDevices(self, src, non_blocking);
    } else {
      at::native::copy_(self, src, non_blocking);
    }
  }
  torch::jit::drop(*stack, 3);
  stack->emplace_back(self);
}

}  // namespace simcuda::ops
