// Families for calls that let an address of ours go where no launch names it: nodes of graphs, textures and
// surfaces, tensor maps, globals of modules, tables of the driver's private functions. What is pinned, and
// what ends it, is kept by HookState; docs/escaped-pointers.md says what is covered. On the thread of the
// call, which is refused when its blocks cannot be pinned.

#ifndef SPILLWAY_INTEGRATION_HOOKS_ESCAPED_FAMILIES_H_
#define SPILLWAY_INTEGRATION_HOOKS_ESCAPED_FAMILIES_H_

#include <utility>

#include "integration/hooks/hook_families.h"
#include "integration/hooks/launch_access_sets.h"
#include "integration/hooks/launch_gate.h"
#include "integration/hooks/pin_ends.h"

namespace spillway::integration {

// A node is made, or given other parameters: its blocks stay as long as what it belongs to. A node without a
// graph among the arguments: until they are freed.
struct NodeParameters {
  template <typename... A>
  static CUresult Call(const RowInfo& row, CUresult(CUDAAPI* real)(A...), A... args) {
    HookScope scope;
    Touch* const touch = scope.touch();
    if (touch == nullptr) return real(args...);
    GraphNode::Collect(touch, args...);
    const CUgraph graph = FirstOf<CUgraph>(args...);
    const CUgraphExec exec = FirstOf<CUgraphExec>(args...);
    if (!touch->set().empty()) touch->state()->pin_reports.Report(allocator::HoldReason::kGraph, row.symbol);
    HoldTicket ticket;
    const bool owned = graph != nullptr || exec != nullptr;
    const CUresult result = PassHolding(touch, allocator::HoldReason::kGraph, owned ? &ticket : nullptr,
                                        [&] { return real(args...); });
    if (result != CUDA_SUCCESS || !owned) return result;
    GraphHolds& graphs = touch->state()->graphs;
    GraphHolds::Ended ended;
    if (exec != nullptr) {
      graphs.SetNode(exec, FirstOf<CUgraphNode>(args...), std::move(ticket), &ended);
    } else {
      graphs.AddToGraph(graph, std::move(ticket));
      (IncludeChild(&graphs, graph, args), ...);
    }
    EndGraphHolds(touch->state(), &ended);
    return result;
  }

 private:
  template <typename T>
  static void IncludeChild(GraphHolds* graphs, CUgraph graph, const T& argument) {
    if constexpr (std::is_same_v<T, CUgraphNodeParams*>) {
      if (argument != nullptr && argument->type == CU_GRAPH_NODE_TYPE_GRAPH) {
        graphs->Include(graph, argument->graph.graph);
      }
    }
  }
};

// (node*, graph, dependencies, count, child).
struct ChildNode {
  static CUresult Call(const RowInfo&, decltype(&::cuGraphAddChildGraphNode) real, CUgraphNode* node,
                       CUgraph graph, const CUgraphNode* dependencies, size_t count, CUgraph child) {
    HookState* const state = GetHookState();
    const CUresult result =
        CallOthers(state, 0, [&] { return real(node, graph, dependencies, count, child); });
    if (result == CUDA_SUCCESS) state->graphs.Include(graph, child);
    return result;
  }
};
// (exec, node, child).
struct ChildParameters {
  static CUresult Call(const RowInfo&, decltype(&::cuGraphExecChildGraphNodeSetParams) real, CUgraphExec exec,
                       CUgraphNode node, CUgraph child) {
    HookState* const state = GetHookState();
    const CUresult result = CallOthers(state, 0, [&] { return real(exec, node, child); });
    GraphHolds::Ended ended;
    if (result == CUDA_SUCCESS) state->graphs.SetChild(exec, node, child, &ended);
    EndGraphHolds(state, &ended);
    return result;
  }
};
// (clone*, original).
struct GraphCloned {
  static CUresult Call(const RowInfo&, decltype(&::cuGraphClone) real, CUgraph* clone, CUgraph original) {
    HookState* const state = GetHookState();
    const CUresult result = CallOthers(state, 0, [&] { return real(clone, original); });
    if (result == CUDA_SUCCESS && clone != nullptr) state->graphs.Include(*clone, original);
    return result;
  }
};
// (exec*, graph, ...).
struct GraphInstantiated {
  template <typename... Rest>
  static CUresult Call(const RowInfo&, CUresult(CUDAAPI* real)(CUgraphExec*, CUgraph, Rest...),
                       CUgraphExec* exec, CUgraph graph, Rest... rest) {
    HookState* const state = GetHookState();
    const CUresult result = CallOthers(state, 0, [&] { return real(exec, graph, rest...); });
    GraphHolds::Ended ended;
    if (result == CUDA_SUCCESS && exec != nullptr) state->graphs.Instantiate(*exec, graph, &ended);
    EndGraphHolds(state, &ended);
    return result;
  }
};
// (exec, graph, ...).
struct ExecUpdated {
  template <typename... Rest>
  static CUresult Call(const RowInfo&, CUresult(CUDAAPI* real)(CUgraphExec, CUgraph, Rest...),
                       CUgraphExec exec, CUgraph graph, Rest... rest) {
    HookState* const state = GetHookState();
    const CUresult result = CallOthers(state, 0, [&] { return real(exec, graph, rest...); });
    GraphHolds::Ended ended;
    if (result == CUDA_SUCCESS) state->graphs.Update(exec, graph, &ended);
    EndGraphHolds(state, &ended);
    return result;
  }
};
// (exec, stream): its blocks are held; the stream is noted, for they are used there until the holds end.
struct GraphLaunched {
  static CUresult Call(const RowInfo& row, decltype(&::cuGraphLaunch) real, CUgraphExec exec,
                       CUstream stream) {
    HookState* const state = GetHookState();
    state->graphs.NoteLaunch(exec, {stream, row.per_thread_default});
    return CallUncollected(state, row.tag, {stream, row.per_thread_default},
                           [&] { return real(exec, stream); });
  }
};
struct GraphEnd {
  static CUresult Call(const RowInfo&, decltype(&::cuGraphDestroy) real, CUgraph graph) {
    GraphHolds::Ended ended;
    GetHookState()->graphs.DropGraph(graph, &ended);
    const CUresult result = real(graph);
    EndGraphHolds(GetHookState(), &ended);
    return result;
  }
};
struct ExecEnd {
  static CUresult Call(const RowInfo&, decltype(&::cuGraphExecDestroy) real, CUgraphExec exec) {
    GraphHolds::Ended ended;
    GetHookState()->graphs.DropExec(exec, &ended);
    const CUresult result = real(exec);
    EndGraphHolds(GetHookState(), &ended);
    return result;
  }
};

// (object*, resource, ...): its words are looked through, and what they name stays while the object exists.
template <ObjectHolds::Kind kKind>
struct ObjectMade {
  template <typename... Rest>
  static CUresult Call(const RowInfo& row, CUresult(CUDAAPI* real)(unsigned long long*, Rest...),
                       unsigned long long* object, Rest... rest) {
    HookScope scope;
    Touch* const touch = scope.touch();
    if (touch == nullptr) return real(object, rest...);
    ResourceWords::Collect(touch, object, rest...);
    if (!touch->set().empty())
      touch->state()->pin_reports.Report(allocator::HoldReason::kTexture, row.symbol);
    HoldTicket ticket;
    const CUresult result =
        PassHolding(touch, allocator::HoldReason::kTexture, &ticket, [&] { return real(object, rest...); });
    // One of that name before it was destroyed unseen: its blocks stay until they are freed.
    if (result == CUDA_SUCCESS && object != nullptr) {
      touch->state()->objects.Add(kKind, *object, std::move(ticket));
    }
    return result;
  }
};
// Which streams still run kernels with the object is not known: the device is waited for, as a free does.
template <ObjectHolds::Kind kKind>
struct ObjectEnd {
  static CUresult Call(const RowInfo&, CUresult(CUDAAPI* real)(unsigned long long),
                       unsigned long long object) {
    HookState* const state = GetHookState();
    HoldTicket ticket = state->objects.Take(kKind, object);
    const CUresult result = real(object);
    HookContext* const context = ContextOf(state);
    const auto synchronize = state->real.Get<Row::cuCtxSynchronize>();
    if (ticket.blocks.empty() || context == nullptr || synchronize == nullptr) return result;
    // Not while anybody captures: waiting would break the capture. The blocks then stay until they are freed.
    if (state->captures.load() != 0 || synchronize() != CUDA_SUCCESS) return result;
    EndHolds(context->devices, &ticket, {});
    return result;
  }
};

// Bytes from the first to the last element.
uint64_t TensorBytes(CUtensorMapDataType type, cuuint32_t rank, const cuuint64_t* sizes,
                     const cuuint64_t* strides);
// Remembers a map over memory of ours; holds its blocks when it cannot be.
CUresult NoteTensorMap(const RowInfo& row, const CUtensorMap* map, uint64_t address, uint64_t bytes);

// The encoders: (map*, data type, rank, address, sizes, strides, ...).
struct TensorMapEncoded {
  template <typename... Rest>
  static CUresult Call(const RowInfo& row,
                       CUresult(CUDAAPI* real)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                                               const cuuint64_t*, const cuuint64_t*, Rest...),
                       CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                       const cuuint64_t* sizes, const cuuint64_t* strides, Rest... rest) {
    const CUresult result = real(map, type, rank, address, sizes, strides, rest...);
    if (result != CUDA_SUCCESS) return result;
    return NoteTensorMap(row, map, AddressOf(address), TensorBytes(type, rank, sizes, strides));
  }
};
struct TensorMapMoved {
  static CUresult Call(const RowInfo& row, decltype(&::cuTensorMapReplaceAddress) real, CUtensorMap* map,
                       void* address);
};
// (address*, bytes*, module or library, name): small copies there are addresses in a global.
struct GlobalFound {
  template <typename P, typename N, typename Module>
  static CUresult Call(const RowInfo&, CUresult(CUDAAPI* real)(P*, N*, Module, const char*), P* address,
                       N* bytes, Module module, const char* name) {
    N wanted = 0;  // the caller need not ask for it
    if (address != nullptr && bytes == nullptr) bytes = &wanted;
    HookState* const state = GetHookState();
    const CUresult result = CallOthers(state, 0, [&] { return real(address, bytes, module, name); });
    if (result == CUDA_SUCCESS && address != nullptr) state->tables.NoteGlobal(module, *address, *bytes);
    return result;
  }
};

// cuGetExportTable: private functions of the driver. Those that CUDA's own libraries ask for launch nothing.
struct ExportTable {
  static CUresult Call(const RowInfo& row, decltype(&::cuGetExportTable) real, const void** table,
                       const CUuuid* id);
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_ESCAPED_FAMILIES_H_
