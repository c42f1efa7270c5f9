#include "integration/hooks/launch_access_sets.h"

#include "integration/hooks/kernel_params.h"

namespace spillway::integration {
namespace {

template <typename Params>
void CollectKernelNode(Touch* touch, const Params& params) {
  void* function = params.func;
  if constexpr (requires { params.kern; }) {
    if (function == nullptr) function = params.kern;
  }
  CollectKernel(touch, function, params.kernelParams, params.extra);
}

template <typename Params>
void CollectMemsetNode(Touch* touch, const Params& params) {
  touch->PitchedRange(params.dst, params.height > 1 ? params.pitch : 0, params.width * params.elementSize,
                      params.height);
}

template <typename Params>
void CollectMemOpNode(Touch* touch, const Params& params) {
  StreamWordBatch::Collect(touch, nullptr, params.count, params.paramArray, 0);
}

void NoteUnusual(Touch* touch, const FunctionInfo& info, bool has_params) {
  if (has_params && !info.understood) {
    touch->NotUnderstood(info.name.empty() ? "a kernel whose parameters the driver does not tell"
                                           : info.name.c_str());
  }
  if (!info.denied) return;
  touch->denied = &info;
  touch->may_block = true;  // so that ordinary launches need not look
}

// Structs by value of more than so many words are not trusted to be arguments alone.
constexpr uint32_t kSmallStructWords = 8;

void CollectFromStructs(const void* const* params, const ParamLayout& layout,
                        const allocator::AddressMap& map, allocator::AccessSet* set) {
  for (const ParamLayout::Entry& entry : layout.entries()) {
    if (entry.words <= kSmallStructWords || params[entry.index] == nullptr) continue;
    ScanBytes(params[entry.index], entry.words * sizeof(uint64_t), map, set);
  }
}

// The blocks behind the tensor maps among the parameters.
void CollectTensorMaps(const TensorMaps& maps, const void* const* params, const ParamLayout& layout,
                       const allocator::AddressMap& map, allocator::AccessSet* set) {
  for (const ParamLayout::Entry& entry : layout.entries()) {
    const size_t bytes = entry.words * sizeof(uint64_t);
    if (bytes >= TensorMaps::kBytes && params[entry.index] != nullptr) {
      maps.Scan(params[entry.index], bytes, map, set);
    }
  }
}

// SPILLWAY_TRUST=strict only.
void NoteTrust(Touch* touch, const FunctionInfo& info, void* const* params) {
  BlockTrust* const trust = touch->context()->trust;
  if (params != nullptr) {
    allocator::AccessSet in_structs;
    CollectFromStructs(params, info.layout, touch->map(), &in_structs);
    trust->NoteInStruct(in_structs);
  }
  trust->NoteLaunch(info.tag, touch->set());
}

}  // namespace

void CollectKernel(Touch* touch, void* function, void* const* params, void* const* extra) {
  if (function == nullptr) return;
  const FunctionInfo* const info = touch->state()->functions.Find(function);
  touch->tag = info->tag;
  if (__builtin_expect(!info->plain, 0)) NoteUnusual(touch, *info, params != nullptr);
  if (params != nullptr) {
    ScanKernelParams(params, info->layout, touch->map(), &touch->set());
    if (__builtin_expect(info->layout.wide(), 0) && touch->state()->tensor_maps.any()) {
      CollectTensorMaps(touch->state()->tensor_maps, params, info->layout, touch->map(), &touch->set());
    }
  }
  if (extra != nullptr) {
    const ExtraBuffer buffer = FindExtraBuffer(extra);
    if (buffer.bytes != nullptr) {
      ScanBytes(buffer.bytes, buffer.size, touch->map(), &touch->set());
      touch->state()->tensor_maps.Scan(buffer.bytes, buffer.size, touch->map(), &touch->set());
    }
  }
  if (__builtin_expect(touch->context()->trust != nullptr, 0)) NoteTrust(touch, *info, params);
}

void CollectNode(Touch* touch, const CUDA_KERNEL_NODE_PARAMS_v1* params) {
  CollectKernelNode(touch, *params);
}
void CollectNode(Touch* touch, const CUDA_KERNEL_NODE_PARAMS_v2* params) {
  CollectKernelNode(touch, *params);
}
void CollectNode(Touch* touch, const CUDA_KERNEL_NODE_PARAMS_v3* params) {
  CollectKernelNode(touch, *params);
}
void CollectNode(Touch* touch, const CUDA_MEMCPY3D* params) { PitchedCopy::Collect(touch, params); }
void CollectNode(Touch* touch, const CUDA_MEMSET_NODE_PARAMS_v1* params) {
  CollectMemsetNode(touch, *params);
}
void CollectNode(Touch* touch, const CUDA_MEMSET_NODE_PARAMS_v2* params) {
  CollectMemsetNode(touch, *params);
}
void CollectNode(Touch* touch, const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1* params) {
  CollectMemOpNode(touch, *params);
}
void CollectNode(Touch* touch, const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2* params) {
  CollectMemOpNode(touch, *params);
}

void CollectNode(Touch* touch, const CUgraphNodeParams* params) {
  switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: CollectNode(touch, &params->kernel); break;
    case CU_GRAPH_NODE_TYPE_MEMCPY: PitchedCopy::Collect(touch, &params->memcpy.copyParams); break;
    case CU_GRAPH_NODE_TYPE_MEMSET: CollectNode(touch, &params->memset); break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: CollectNode(touch, &params->memOp); break;
    default:  // others name no memory in a way that is known; a word that looks like ours counts
      ScanBytes(params, sizeof(*params), touch->map(), &touch->set());
      break;
  }
}

}  // namespace spillway::integration
