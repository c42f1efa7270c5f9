#include "integration/hooks/launch_access_sets.h"

#include <algorithm>
#include <cstring>

#include "integration/hooks/kernel_params.h"
#include "integration/hooks/launch_gate.h"

namespace spillway::integration {
namespace {

// Adds the blocks of a kernel node. `kern` counts if `func` is null; a handle in it is a CUkernel, whoever
// has given it out.
template <typename Params>
void CollectKernelNode(AccessSetBuilder* builder, const Params& params) {
  void* function = params.func;
  if constexpr (requires { params.kern; }) {
    if (function == nullptr && params.kern != nullptr) {
      function = params.kern;
      builder->state()->functions.RecordNamed(function, HandleKind::kKernel);
    }
  }
  CollectKernel(builder, function, params.kernelParams, params.extra);
}

template <typename Params>
void CollectMemsetNode(AccessSetBuilder* builder, const Params& params) {
  builder->PitchedRange(params.dst, params.height > 1 ? params.pitch : 0, params.width * params.elementSize,
                        params.height);
}

template <typename Params>
void CollectMemOpNode(AccessSetBuilder* builder, const Params& params) {
  WordBatch::Collect(builder, nullptr, params.count, params.paramArray, 0);
}

// Returns whether this launch of a kernel of NCCL's names all that it reaches. NCCL gives the arguments as
// `extra`.
bool NamesItsWorks(const FunctionInfo& info, void* const* params, const ExtraBuffer& extra) {
  if (info.nccl == NcclKernel::kUnknown) return false;
  if (extra.bytes != nullptr) return NcclWorksAreInArguments(extra.bytes, extra.size);
  const size_t bytes = info.layout.entries().front().words * sizeof(uint64_t);
  return params != nullptr && NcclWorksAreInArguments(params[0], bytes);
}

void RecordUnusual(AccessSetBuilder* builder, const FunctionInfo& info, void* const* params,
                   const ExtraBuffer& extra) {
  if (info.of_unknown_origin && (params != nullptr || extra.bytes != nullptr)) {
    builder->OfUnknownOrigin();
  } else if (info.unanswered && (params != nullptr || extra.bytes != nullptr || info.name.empty())) {
    builder->Unanswered(info);
  } else if (!info.unanswered && !info.of_unknown_origin && !info.understood &&
             (params != nullptr || info.name.empty())) {
    builder->NotUnderstood(info.name.empty() ? "a kernel whose name or parameters the driver does not give"
                                             : info.name.c_str());
  }
  if (info.denied != nullptr) {
    builder->denied = &info;
  } else if (info.nccl != NcclKernel::kNone && !NamesItsWorks(info, params, extra)) {
    builder->nccl = &info;
  } else {
    return;
  }
  builder->may_block = true;  // sets may_block, so that ordinary launches need look at neither
}

// The facts about the tables of a launch.
struct TablesOfLaunch {
  bool any = false;     // a table was found
  bool untold = false;  // the driver did not report for some word whether it is the address of a table
};

// Returns whether the word may be the address of a table: it lies in a block of ours, or in memory that the
// driver knows. The driver answers INVALID_VALUE for memory that it does not know.
bool IsDeviceAddress(const AccessSetBuilder& builder, uint64_t word, TablesOfLaunch* tables) {
  if (builder.map().Contains(word)) return true;
  if (word == 0) return false;
  const auto ask = builder.state()->real.Ask<Row::cuPointerGetAttribute>();
  unsigned int type = 0;
  const CUresult asked =
      ask == nullptr ? CUDA_ERROR_NOT_SUPPORTED : ask(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, word);
  tables->untold |= asked != CUDA_SUCCESS && asked != CUDA_ERROR_INVALID_VALUE;
  return asked == CUDA_SUCCESS && type == CU_MEMORYTYPE_DEVICE;
}

// Records a table at each address among the words. Most launches of some writers name no block: their writes
// matter only over an earlier table, and the driver is not asked.
void RecordTables(AccessSetBuilder* builder, const void* words, size_t count, bool fills,
                  TablesOfLaunch* tables) {
  for (size_t i = 0; i < count; ++i) {
    uint64_t word = 0;
    std::memcpy(&word, static_cast<const char*>(words) + i * sizeof(word), sizeof(word));
    if (builder->set().empty() && !builder->state()->tables.MayOverlap(word, sizeof(word))) continue;
    if (!IsDeviceAddress(*builder, word, tables)) continue;
    builder->KernelWrites(word, fills);
    tables->any = true;
  }
}

// Returns whether the kernel has an address at each place where the row has a table. Another version of the
// kernel may have other parameters; any of them may point to a table then.
bool FitsRow(const DenyList::Entry& row, const ParamLayout& layout) {
  const auto is_word = [&](const ParamLayout::Entry& entry) {
    return entry.words == 1 && std::binary_search(row.tables.begin(), row.tables.end(), entry.index);
  };
  return static_cast<size_t>(std::count_if(layout.entries().begin(), layout.entries().end(), is_word)) ==
         row.tables.size();
}

// Handles a writer of the deny list, once the set is complete: the addresses of its blocks go into its
// tables. A launch that does not show all its tables stays marked as denied.
void CollectWriter(AccessSetBuilder* builder, const FunctionInfo& info, void* const* params,
                   const ExtraBuffer& buffer) {
  const DenyList::Entry& row = *info.denied;
  const bool by_number = !row.tables.empty() && FitsRow(row, info.layout);
  TablesOfLaunch tables;
  RecordTables(builder, buffer.bytes, buffer.size / sizeof(uint64_t), false, &tables);
  for (const ParamLayout::Entry& entry : info.layout.entries()) {
    const bool is_table = !by_number || std::binary_search(row.tables.begin(), row.tables.end(), entry.index);
    if (params == nullptr || params[entry.index] == nullptr || !is_table) continue;
    RecordTables(builder, params[entry.index], entry.words, by_number && row.fills, &tables);
  }
  const bool known = builder->set().empty() || (tables.any && !tables.untold);
  if (known && builder->denied == &info)
    builder->denied = nullptr;  // another kernel of the call may be marked
}

// Nodes that the oldest supported headers lack; type and parameters are as in cuda.h from 13.5 on.
constexpr int kBatchCopyNode = 14;
struct BatchCopyNode {
  size_t count;
  const CUdeviceptr* destinations;
  const CUdeviceptr* sources;
  const size_t* sizes;
};
constexpr int kFabricCopyNode = 18;
struct FabricCopyNode {
  size_t count;
  const void* ops;
};
constexpr char kUnknownNode[] = "a graph node of a type that is newer than this version of Spillway";

template <typename Node>
Node NodeAs(const CUgraphNodeParams* params) {
  Node node;
  std::memcpy(&node, &params->kernel, sizeof(node));  // all kinds begin at the same place
  return node;
}

void CollectBatchCopyNode(AccessSetBuilder* builder, const BatchCopyNode& node) {
  BatchCopy::Collect(builder, node.destinations, node.sources, node.sizes, node.count, nullptr, nullptr,
                     size_t{0});
}

void CollectFabricCopyNode(AccessSetBuilder* builder, const FabricCopyNode& node) {
  FabricCopyBatch::Collect(builder, node.count, node.ops, 0, nullptr);
}

// Strict trust does not follow addresses in structs by value of more words than this.
constexpr uint32_t kSmallStructWords = 8;

void CollectFromStructs(const void* const* params, const ParamLayout& layout,
                        const allocator::AddressMap& map, allocator::AccessSet* set) {
  for (const ParamLayout::Entry& entry : layout.entries()) {
    if (entry.words <= kSmallStructWords || params[entry.index] == nullptr) continue;
    ScanBytes(params[entry.index], entry.words * sizeof(uint64_t), map, set);
  }
}

// Adds the blocks behind the tensor maps among the parameters.
void CollectTensorMaps(const TensorMaps& maps, const void* const* params, const ParamLayout& layout,
                       const allocator::AddressMap& map, allocator::AccessSet* set) {
  for (const ParamLayout::Entry& entry : layout.entries()) {
    const size_t bytes = entry.words * sizeof(uint64_t);
    if (bytes >= TensorMaps::kBytes && params[entry.index] != nullptr) {
      maps.Scan(params[entry.index], bytes, map, set);
    }
  }
}

// Asks for the function again, as its code is loaded when it is first asked for and a full GPU has no memory
// for it. Any other failure may be over by now. Not inlined: the launches that need none of this would pay
// for the variable whose address it takes.
[[gnu::noinline, gnu::cold]] const FunctionInfo* AskAgain(HookState* state, void* function,
                                                          const FunctionInfo* info) {
  CallWithRetry(state, kUnknownBytes, [&] {
    info = state->functions.Find(function);
    return info->no_memory ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
  });
  return info;
}

const FunctionInfo* FindFunction(HookState* state, void* function) {
  const FunctionInfo* const info = state->functions.Find(function);
  return __builtin_expect(info->unanswered, 0) ? AskAgain(state, function, info) : info;
}

// Records the launch for SPILLWAY_TRUST=strict.
void RecordTrust(AccessSetBuilder* builder, const FunctionInfo& info, void* const* params) {
  BlockTrust* const trust = builder->context()->trust;
  if (params != nullptr) {
    allocator::AccessSet in_structs;
    CollectFromStructs(params, info.layout, builder->map(), &in_structs);
    trust->RecordInStruct(in_structs);
  }
  trust->RecordLaunch(info.tag, builder->set());
}

}  // namespace

void RecordOverlap(AccessSetBuilder* builder, CUstream stream) {
  int recorded = -1;
  for (const allocator::BlockId id : builder->set()) {
    if (id.device() == recorded) continue;
    recorded = id.device();
    if (allocator::Residency* const residency = builder->context()->Of(recorded))
      residency->RecordOverlap({stream, false});
  }
}

void CollectKernel(AccessSetBuilder* builder, void* function, void* const* params, void* const* extra) {
  if (function == nullptr) return;
  const FunctionInfo* const info = FindFunction(builder->state(), function);
  builder->tag = info->tag;
  const ExtraBuffer buffer = extra == nullptr ? ExtraBuffer{} : FindExtraBuffer(extra);
  if (__builtin_expect(!info->plain, 0)) RecordUnusual(builder, *info, params, buffer);
  if (params != nullptr) {
    ScanKernelParams(params, info->layout, builder->map(), &builder->set());
    if (__builtin_expect(info->layout.wide(), 0) && builder->state()->tensor_maps.any()) {
      CollectTensorMaps(builder->state()->tensor_maps, params, info->layout, builder->map(), &builder->set());
    }
  }
  if (buffer.bytes != nullptr) {
    ScanBytes(buffer.bytes, buffer.size, builder->map(), &builder->set());
    builder->state()->tensor_maps.Scan(buffer.bytes, buffer.size, builder->map(), &builder->set());
  }
  if (__builtin_expect(!info->plain, 0) && info->denied != nullptr &&
      info->denied->action == DenyList::Action::kWriter) {
    CollectWriter(builder, *info, params, buffer);
  }
  if (__builtin_expect(builder->context()->trust != nullptr, 0)) RecordTrust(builder, *info, params);
}

void CollectNode(AccessSetBuilder* builder, const CUDA_KERNEL_NODE_PARAMS_v1* params) {
  CollectKernelNode(builder, *params);
}
void CollectNode(AccessSetBuilder* builder, const CUDA_KERNEL_NODE_PARAMS_v2* params) {
  CollectKernelNode(builder, *params);
}
void CollectNode(AccessSetBuilder* builder, const CUDA_KERNEL_NODE_PARAMS_v3* params) {
  CollectKernelNode(builder, *params);
}
void CollectNode(AccessSetBuilder* builder, const CUDA_MEMCPY3D* params) {
  PitchedCopy::Collect(builder, params);
}
void CollectNode(AccessSetBuilder* builder, const CUDA_MEMSET_NODE_PARAMS_v1* params) {
  CollectMemsetNode(builder, *params);
}
void CollectNode(AccessSetBuilder* builder, const CUDA_MEMSET_NODE_PARAMS_v2* params) {
  CollectMemsetNode(builder, *params);
}
void CollectNode(AccessSetBuilder* builder, const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1* params) {
  CollectMemOpNode(builder, *params);
}
void CollectNode(AccessSetBuilder* builder, const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2* params) {
  CollectMemOpNode(builder, *params);
}

void CollectNode(AccessSetBuilder* builder, const CUgraphNodeParams* params) {
  switch (ValueOf(params->type)) {
    case CU_GRAPH_NODE_TYPE_KERNEL: CollectNode(builder, &params->kernel); break;
    case CU_GRAPH_NODE_TYPE_MEMCPY: PitchedCopy::Collect(builder, &params->memcpy.copyParams); break;
    case CU_GRAPH_NODE_TYPE_MEMSET: CollectNode(builder, &params->memset); break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: CollectNode(builder, &params->memOp); break;
    case kBatchCopyNode: CollectBatchCopyNode(builder, NodeAs<BatchCopyNode>(params)); break;
    case kFabricCopyNode: CollectFabricCopyNode(builder, NodeAs<FabricCopyNode>(params)); break;
    case CU_GRAPH_NODE_TYPE_HOST:
    case CU_GRAPH_NODE_TYPE_GRAPH:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      // These name no memory in a known way, so a word that looks like an address of ours counts.
      ScanBytes(params, sizeof(*params), builder->map(), &builder->set());
      break;
    default: builder->NotUnderstood(kUnknownNode); break;
  }
}

}  // namespace spillway::integration
