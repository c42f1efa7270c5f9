#include "integration/hooks/escaped_families.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string>

#include "integration/hooks/launch_reports.h"
#include "io/os/log.h"

namespace spillway::integration {
namespace {

// The first words of the tables that CUDA's runtime and libraries are known to ask for in ordinary use
// (docs/escaped-pointers.md).
constexpr unsigned char kKnownTables[][4] = {
    {0x6b, 0xd5, 0xfb, 0x6c},  // runtime interface
    {0xa0, 0x94, 0x79, 0x8c},  // runtime callbacks
    {0x42, 0xd8, 0x5a, 0x81},  // tools' thread-local storage
    {0xc6, 0x93, 0x33, 0x6e},  // context-local storage
    {0x26, 0x3e, 0x88, 0x60},  // context checks
    {0xd4, 0x08, 0x20, 0x55},  // integrity check
    {0xf8, 0xcf, 0xf9, 0x51},  // first asked for by the runtime of 13.0; may be refused
    {0x19, 0x5b, 0xcb, 0xf4},  // heap access
    {0xb1, 0x05, 0x41, 0xe1},  // device extensions of the runtime
    {0x0c, 0xa5, 0x0b, 0x8c},  // context creation
    {0x21, 0x31, 0x8c, 0x60},  // asked for by cuBLAS, cuBLASLt and cuFFT
};

bool IsKnown(const CUuuid& id) {
  return std::any_of(std::begin(kKnownTables), std::end(kKnownTables),
                     [&](const auto& known) { return std::memcmp(known, id.bytes, sizeof(known)) == 0; });
}

// Returns a name like "private driver table 12458358-a7c2-1e59-2177-ef3556188709".
std::string TableName(const CUuuid& id) {
  std::string name = "private driver table ";
  for (size_t i = 0; i < sizeof(id.bytes); ++i) {
    char digits[4];
    const bool dash = i == 4 || i == 6 || i == 8 || i == 10;
    std::snprintf(digits, sizeof(digits), "%s%02x", dash ? "-" : "", static_cast<unsigned char>(id.bytes[i]));
    name += digits;
  }
  return name;
}

// Returns the file name of the library that contains the address.
std::string LibraryOf(const void* address) {
  Dl_info info = {};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "a program";
  const char* const slash = std::strrchr(info.dli_fname, '/');
  return slash == nullptr ? info.dli_fname : slash + 1;
}

uint64_t ElementBytes(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8: return 1;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: return 2;
    case CU_TENSOR_MAP_DATA_TYPE_UINT64:
    case CU_TENSOR_MAP_DATA_TYPE_INT64:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64: return 8;
    case CU_TENSOR_MAP_DATA_TYPE_UINT32:
    case CU_TENSOR_MAP_DATA_TYPE_INT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ:
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ: return 4;
    default: return 1;  // packed types, of less than a byte
  }
}

}  // namespace

namespace {

// Returns whether the node takes its child over, so that nodes which are added to the child later are the
// node's as well.
template <typename Child>
bool TakesOver(const Child& child) {
  if constexpr (requires { child.ownership; }) {
    return static_cast<int>(child.ownership) == 1;  // CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE
  } else {
    return false;
  }
}

// Calls visit(graph) for each body of a conditional node.
template <typename Params, typename Visit>
void ForEachBody(const Params& params, Visit&& visit) {
  if (ValueOf(params.type) != CU_GRAPH_NODE_TYPE_CONDITIONAL || params.conditional.phGraph_out == nullptr)
    return;
  for (unsigned int i = 0; i < params.conditional.size; ++i) visit(params.conditional.phGraph_out[i]);
}

}  // namespace

void RecordGraphsAdded(GraphBlocks* graphs, CUgraph graph, CUgraphNode node,
                       const CUgraphNodeParams& params) {
  if (ValueOf(params.type) == CU_GRAPH_NODE_TYPE_GRAPH) {
    if (TakesOver(params.graph)) {
      graphs->AddBody(graph, node, params.graph.graph);
    } else if (graph != nullptr) {
      graphs->Include(graph, params.graph.graph);
    }
  }
  if (graph == nullptr) return;
  ForEachBody(params, [&](CUgraph body) { graphs->AddBody(graph, node, body); });
}

void RecordGraphsSet(GraphBlocks* graphs, CUgraphExec exec, CUgraphNode node,
                     const CUgraphNodeParams& params) {
  if (ValueOf(params.type) == CU_GRAPH_NODE_TYPE_GRAPH) graphs->SetChild(exec, node, params.graph.graph);
}

void RecordGraphsFound(GraphBlocks* graphs, const CUgraphNodeParams& params) {
  if (ValueOf(params.type) == CU_GRAPH_NODE_TYPE_GRAPH) graphs->RecordInner(params.graph.graph);
  ForEachBody(params, [&](CUgraph body) { graphs->RecordInner(body); });
}

void CollectGraph(AccessSetBuilder* builder, CUgraph graph) {
  if (!builder->state()->graphs.Follows(graph))
    builder->NotUnderstood("a graph of unknown nodes, launched unseen,");
  for (const GraphBlocks::Range& range : builder->state()->graphs.BlocksOf(graph))
    builder->Range(range.base, range.bytes);
}

void CollectChild(AccessSetBuilder* builder, const CUgraphNodeParams* params) {
  if (params != nullptr && ValueOf(params->type) == CU_GRAPH_NODE_TYPE_GRAPH)
    CollectGraph(builder, params->graph.graph);
}

CUresult PassUnfollowed(AccessSetBuilder* builder, const RowInfo& row, RealCall real) {
  if (!builder->set().empty()) builder->state()->pin_reports.Report(allocator::PinReason::kGraph, row.symbol);
  return PassPinning(builder, allocator::PinReason::kGraph, real);
}

CUresult PassChanged(const RowInfo& row, CUgraphExec exec, CUgraph graph, RealCall real,
                     absl::FunctionRef<void(GraphBlocks*)> note) {
  HookScope scope;
  AccessSetBuilder* const builder = scope.builder();
  GraphBlocks& graphs = GetHookState()->graphs;
  const bool unseen = builder != nullptr && graphs.LaunchedByDevice(exec);
  if (unseen) CollectGraph(builder, graph);
  const CUresult result =
      unseen ? PassUnfollowed(builder, row, real) : CallWithRetry(GetHookState(), kUnknownBytes, real);
  if (result == CUDA_SUCCESS) note(&graphs);
  return result;
}

namespace {

// Adds what a launch of `exec` names, to an empty set. Returns false if that is not known.
bool CollectExec(AccessSetBuilder* builder, CUgraphExec exec) {
  return builder->state()->graphs.Visit(exec, [&](const GraphBlocks::Ranges& ranges, uint64_t signature) {
    builder->Blocks(ranges);
    builder->tag = TagOfGraph(builder->tag, signature);
  });
}

// Passes a launch on a stream that is being captured.
CUresult LaunchIntoCapture(AccessSetBuilder* builder, const RowInfo& row, CUgraphExec exec,
                           allocator::StreamRef stream, RealCall real) {
  HookState* const state = GetHookState();
  const uint64_t capture = CaptureOf(*state, stream);
  // The graph that a capture becomes is unknown if it has no id or the driver's answer is uncertain.
  if (builder != nullptr && !state->graphs.Follows(capture)) {
    if (!CollectExec(builder, exec)) builder->NotUnderstood("a graph of unknown nodes inside another");
    return PassUnfollowed(builder, row, real);
  }
  const CUresult result = CallWithRetry(state, kUnknownBytes, real);
  if (result == CUDA_SUCCESS && capture != 0) state->graphs.AddExecToCapture(capture, exec);
  return result;
}

void ReportUnknownGraph() {
  static std::atomic<bool> reported{false};
  if (reported.exchange(true)) return;
  os::ReportLine(
      "a launched graph has nodes that no hook has seen: all blocks are brought to the GPU for each "
      "launch of such a graph");
}

}  // namespace

CUresult GraphLaunched::Call(const RowInfo& row, decltype(&::cuGraphLaunch) real, CUgraphExec exec,
                             CUstream handle) {
  HookScope scope;
  AccessSetBuilder* const builder = scope.builder();
  HookState* const state = GetHookState();
  const allocator::StreamRef stream{handle, row.per_thread_default};
  const auto call = [&] { return real(exec, handle); };
  if (IsCapturing(*state, stream)) return LaunchIntoCapture(builder, row, exec, stream, call);
  if (builder == nullptr) return CallWithoutBlocks(state, row.tag, stream, call);
  builder->tag = row.tag;
  if (!CollectExec(builder, exec)) {
    ReportUnknownGraph();
    builder->reaches_all = builder->may_block = true;
  }
  return PassGate(builder, stream, call);
}

uint64_t TensorBytes(CUtensorMapDataType type, cuuint32_t rank, const cuuint64_t* sizes,
                     const cuuint64_t* strides) {
  if (rank == 0 || sizes == nullptr) return 1;
  uint64_t bytes = sizes[0] * ElementBytes(type);
  for (cuuint32_t i = 1; i < rank && strides != nullptr; ++i) bytes += (sizes[i] - 1) * strides[i - 1];
  return std::max<uint64_t>(bytes, 1);
}

CUresult RecordTensorMap(const RowInfo& row, const CUtensorMap* map, uint64_t address, uint64_t bytes) {
  HookScope scope;
  AccessSetBuilder* const builder = scope.builder();
  if (builder == nullptr || map == nullptr || !builder->map().Contains(address)) return CUDA_SUCCESS;
  HookState* const state = builder->state();
  if (state->tensor_maps.Record(map, {address, bytes}, builder->map())) return CUDA_SUCCESS;
  builder->Range(address, bytes);
  state->pin_reports.Report(allocator::PinReason::kUnknownCall, row.symbol);
  return PassPinning(builder, allocator::PinReason::kUnknownCall, [] { return CUDA_SUCCESS; });
}

CUresult TensorMapMoved::Call(const RowInfo& row, decltype(&::cuTensorMapReplaceAddress) real,
                              CUtensorMap* map, void* address) {
  // The old content of the map shows how many bytes it covers. A map over external memory is taken to lie in
  // one block.
  const uint64_t known = map == nullptr ? 0 : GetHookState()->tensor_maps.Find(map).bytes;
  const CUresult result = real(map, address);
  if (result != CUDA_SUCCESS) return result;
  return RecordTensorMap(row, map, AddressOf(address), std::max<uint64_t>(known, 1));
}

void ExportTable::Record(const CUuuid& id, const void* caller) {
  if (IsKnown(id)) return;
  HookState* const state = GetHookState();
  const std::string name = TableName(id);
  const std::string library = LibraryOf(caller);
  HookContext* const context = ContextOf(state);
  if (context != nullptr && context->strict) {
    SwitchEvictionOff(state, (name + ", which " + library + " asked for,").c_str());
  } else {
    state->pin_reports.ReportTable(library, name);
  }
}

}  // namespace spillway::integration
