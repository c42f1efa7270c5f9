#include "integration/engine/kernel_passes.h"

#include <algorithm>
#include <string>

namespace spillway::integration {
namespace {

using allocator::KernelPasses;

struct KernelName {
  const char* part;  // of the name, in small letters
  KernelPasses passes;
};

// The first row whose part occurs decides. Matrix products are cuBLAS's, CUTLASS's, MAGMA's and Triton's;
// convolutions cuDNN's; attention PyTorch's and cuDNN's. Updates in place are PyTorch's.
constexpr KernelName kKernelNames[] = {
    {"embedding_backward", KernelPasses::kAtomic},
    {"embeddingbag_updategrad", KernelPasses::kAtomic},
    {"indexing_backward", KernelPasses::kAtomic},
    {"indexfunc", KernelPasses::kAtomic},  // index_add, index_reduce
    {"scatter", KernelPasses::kAtomic},
    {"histogram", KernelPasses::kAtomic},
    {"atomic", KernelPasses::kAtomic},
    {"gemm", KernelPasses::kMany},
    {"gemv", KernelPasses::kMany},
    {"cutlass", KernelPasses::kMany},
    {"xmma", KernelPasses::kMany},
    {"nvjet", KernelPasses::kMany},  // cuBLAS on Hopper
    {"magma", KernelPasses::kMany},
    {"matmul", KernelPasses::kMany},
    {"convol", KernelPasses::kMany},
    {"conv_", KernelPasses::kMany},
    {"conv1d", KernelPasses::kMany},
    {"conv2d", KernelPasses::kMany},
    {"conv3d", KernelPasses::kMany},
    {"winograd", KernelPasses::kMany},
    {"dgrad", KernelPasses::kMany},
    {"wgrad", KernelPasses::kMany},
    {"flash", KernelPasses::kMany},
    {"fmha", KernelPasses::kMany},
    {"attention", KernelPasses::kMany},
    {"sort", KernelPasses::kMany},
};

}  // namespace

KernelPasses PassesOf(std::string_view name) {
  std::string small(name);
  std::ranges::transform(small, small.begin(), [](char letter) {
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  });
  const auto* const row = std::ranges::find_if(
      kKernelNames, [&](const KernelName& one) { return small.find(one.part) != std::string::npos; });
  return row == std::end(kKernelNames) ? KernelPasses::kOne : row->passes;
}

}  // namespace spillway::integration
