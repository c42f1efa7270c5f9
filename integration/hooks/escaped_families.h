// Families for calls that let an address of ours go where no launch's parameters show it: nodes of graphs,
// textures and surfaces, tensor maps, globals of modules, tables of the driver's private functions. They run
// on the thread of the call, which is refused if its blocks cannot be pinned. HookState keeps the pins, the
// events that end them, and the blocks that graphs name. docs/escaped-pointers.md lists the covered calls.

#ifndef SPILLWAY_INTEGRATION_HOOKS_ESCAPED_FAMILIES_H_
#define SPILLWAY_INTEGRATION_HOOKS_ESCAPED_FAMILIES_H_

#include <type_traits>
#include <utility>

#include "integration/hooks/hook_context.h"
#include "integration/hooks/hook_families.h"
#include "integration/hooks/launch_access_sets.h"
#include "integration/hooks/launch_gate.h"

namespace spillway::integration {

// Records the graphs that a new node of `graph` runs: a child, or the bodies that the driver has made for it.
// Null: it is not known whose node that is.
void RecordGraphsAdded(GraphBlocks* graphs, CUgraph graph, CUgraphNode node, const CUgraphNodeParams& params);
// Records that the node of the executable graph runs another child.
void RecordGraphsSet(GraphBlocks* graphs, CUgraphExec exec, CUgraphNode node,
                     const CUgraphNodeParams& params);
// Records the graphs that belong to a node whose parameters the driver gives out.
void RecordGraphsFound(GraphBlocks* graphs, const CUgraphNodeParams& params);
// Adds what the child among the parameters names, if there is one, to the builder's set.
void CollectChild(AccessSetBuilder* builder, const CUgraphNodeParams* params);
// Adds what the graph names. Evictions end if that is not known.
void CollectGraph(AccessSetBuilder* builder, CUgraph graph);
// Calls `real`, which puts the builder's set where no launch of a graph shows it: the set stays on the GPU
// until it is freed.
CUresult PassUnfollowed(AccessSetBuilder* builder, const RowInfo& row, RealCall real);
// Calls `real`, after which nodes of `exec` run what `graph` runs, and then `note`. If kernels may launch
// `exec`, the graph's blocks stay on the GPU until they are freed.
CUresult PassChanged(const RowInfo& row, CUgraphExec exec, CUgraph graph, RealCall real,
                     absl::FunctionRef<void(GraphBlocks*)> note);

// Wraps calls that make a node or give it other parameters. The launches of the node's graph name what the
// node names. If it is not known whose node it is, or kernels may launch the executable graph, the blocks are
// pinned before the real call and stay until they are freed. The real call is not made if that fails.
struct NodeParameters {
  template <typename... A>
  static CUresult Call(const RowInfo& row, CUresult(CUDAAPI* real)(A...), A... args) {
    HookScope scope;
    AccessSetBuilder* const builder = scope.builder();
    const CUgraph graph = FirstOf<CUgraph>(args...);         // null if the call sets a node's parameters
    const CUgraphExec exec = FirstOf<CUgraphExec>(args...);  // null if the node is one of a graph
    if (builder == nullptr) {
      const CUresult result = real(args...);
      // No block exists yet, but the graphs inside the node may get nodes that name one later.
      if (result == CUDA_SUCCESS && !InsideHookedCall()) RecordGraphs(&GetHookState()->graphs, args...);
      return result;
    }
    GraphBlocks& graphs = builder->state()->graphs;
    GraphNode::Collect(builder, args...);
    GraphBlocks::Ranges named;
    const bool followed = exec != nullptr ? !graphs.LaunchedByDevice(exec) : graphs.Follows(graph);
    if (!followed) CollectChild(builder, FirstOf<CUgraphNodeParams*>(args...));
    const CUresult result = followed ? PassIntoGraph(builder, &named, [&] { return real(args...); })
                                     : PassUnfollowed(builder, row, [&] { return real(args...); });
    if (result != CUDA_SUCCESS) return result;
    if (exec == nullptr) {
      graphs.AddToGraph(graph, named);
      RecordGraphs(&graphs, args...);
      return result;
    }
    const CUgraphNode node = FirstOf<CUgraphNode>(args...);
    graphs.SetNode(exec, node, named);
    if (const CUgraphNodeParams* const params = FirstOf<CUgraphNodeParams*>(args...))
      RecordGraphsSet(&graphs, exec, node, *params);
    return result;
  }

 private:
  // Records the graphs inside a node of a graph that is made or gets other parameters. They may get nodes
  // that name blocks once there are blocks.
  template <typename... A>
  static void RecordGraphs(GraphBlocks* graphs, A... args) {
    const CUgraphNodeParams* const params = FirstOf<CUgraphNodeParams*>(args...);
    if (params == nullptr || FirstOf<CUgraphExec>(args...) != nullptr) return;
    const CUgraph graph = FirstOf<CUgraph>(args...);
    CUgraphNode* const made = FirstOf<CUgraphNode*>(args...);
    // The owner of a child that is put in is not known without a graph among the arguments.
    if (graph == nullptr) RecordGraphsAdded(graphs, nullptr, nullptr, *params);
    if (graph != nullptr && made != nullptr) RecordGraphsAdded(graphs, graph, *made, *params);
  }
};

// cuGraphCreate: the handle may be that of a graph which ended unseen, inside another graph.
struct GraphMade {
  static CUresult Call(const RowInfo&, decltype(&::cuGraphCreate) real, CUgraph* graph, unsigned int flags) {
    HookState* const state = GetHookState();
    const CUresult result = CallWithRetry(state, kUnknownBytes, [&] { return real(graph, flags); });
    if (result == CUDA_SUCCESS && graph != nullptr) state->graphs.RecordMade(*graph);
    return result;
  }
};

// (node*, graph, dependencies, count, child): the graph runs what the child runs. The driver copies the
// child, so the child may end before the graph does.
struct ChildNode {
  static CUresult Call(const RowInfo& row, decltype(&::cuGraphAddChildGraphNode) real, CUgraphNode* node,
                       CUgraph graph, const CUgraphNode* dependencies, size_t count, CUgraph child) {
    HookScope scope;
    GraphBlocks& graphs = GetHookState()->graphs;
    const auto call = [&] { return real(node, graph, dependencies, count, child); };
    const bool followed = scope.builder() == nullptr || graphs.Follows(graph);
    if (!followed) CollectGraph(scope.builder(), child);
    const CUresult result = followed ? CallWithRetry(GetHookState(), kUnknownBytes, call)
                                     : PassUnfollowed(scope.builder(), row, call);
    if (result == CUDA_SUCCESS) graphs.Include(graph, child);
    return result;
  }
};
// (exec, node, child): the node of the executable graph runs another child.
struct ChildParameters {
  static CUresult Call(const RowInfo& row, decltype(&::cuGraphExecChildGraphNodeSetParams) real,
                       CUgraphExec exec, CUgraphNode node, CUgraph child) {
    return PassChanged(
        row, exec, child, [&] { return real(exec, node, child); },
        [&](GraphBlocks* graphs) { graphs->SetChild(exec, node, child); });
  }
};
// (clone*, original): the clone runs what the original runs.
struct GraphCloned {
  static CUresult Call(const RowInfo&, decltype(&::cuGraphClone) real, CUgraph* clone, CUgraph original) {
    HookState* const state = GetHookState();
    const CUresult result = CallWithRetry(state, kUnknownBytes, [&] { return real(clone, original); });
    if (result != CUDA_SUCCESS || clone == nullptr) return result;
    state->graphs.RecordMade(*clone);
    state->graphs.Include(*clone, original);
    return result;
  }
};
// (exec*, graph, ...): launches of the executable graph name what the graph names, even after the graph is
// destroyed. The blocks of a graph that kernels may launch must be on the GPU at any time.
struct GraphInstantiated {
  template <typename... Rest>
  static CUresult Call(const RowInfo& row, CUresult(CUDAAPI* real)(CUgraphExec*, CUgraph, Rest...),
                       CUgraphExec* exec, CUgraph graph, Rest... rest) {
    HookScope scope;
    GraphBlocks& graphs = GetHookState()->graphs;
    const auto call = [&] { return real(exec, graph, rest...); };
    const bool by_device = (LaunchedByDevice(rest) || ...);
    const bool unseen = by_device && scope.builder() != nullptr;
    if (unseen) CollectGraph(scope.builder(), graph);
    const CUresult result = unseen ? PassUnfollowed(scope.builder(), row, call)
                                   : CallWithRetry(GetHookState(), kUnknownBytes, call);
    if (result == CUDA_SUCCESS && exec != nullptr) graphs.Instantiate(*exec, graph, by_device);
    return result;
  }

 private:
  // The flags are a number of their own, or among parameters; the oldest form has none.
  template <typename T>
  static bool LaunchedByDevice(T argument) {
    if constexpr (std::is_same_v<T, unsigned long long>) {
      return (argument & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0;
    } else if constexpr (std::is_same_v<T, CUDA_GRAPH_INSTANTIATE_PARAMS*>) {
      return argument != nullptr && (argument->flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0;
    } else {
      return false;
    }
  }
};
// (exec, graph, ...): the blocks that the executable graph names are replaced by those that the graph names.
// After a failed update the old still counts.
struct ExecUpdated {
  template <typename... Rest>
  static CUresult Call(const RowInfo& row, CUresult(CUDAAPI* real)(CUgraphExec, CUgraph, Rest...),
                       CUgraphExec exec, CUgraph graph, Rest... rest) {
    return PassChanged(
        row, exec, graph, [&] { return real(exec, graph, rest...); },
        [&](GraphBlocks* graphs) { graphs->Update(exec, graph); });
  }
};
// (node, graph*): the graph inside a node, or (node, parameters*): nodes may be added to that graph from now
// on.
struct InnerGraphFound {
  static CUresult Call(const RowInfo&, decltype(&::cuGraphChildGraphNodeGetGraph) real, CUgraphNode node,
                       CUgraph* graph) {
    const CUresult result = real(node, graph);
    if (result == CUDA_SUCCESS && graph != nullptr) GetHookState()->graphs.RecordInner(*graph);
    return result;
  }
  static CUresult Call(const RowInfo&, decltype(&::cuGraphNodeGetParams) real, CUgraphNode node,
                       CUgraphNodeParams* params) {
    const CUresult result = real(node, params);
    if (result != CUDA_SUCCESS || params == nullptr) return result;
    RecordGraphsFound(&GetHookState()->graphs, *params);
    if (ValueOf(params->type) == CU_GRAPH_NODE_TYPE_KERNEL)
      RecordKernelOfNode(&GetHookState()->functions, params->kernel);
    return result;
  }
};
// cuGraphDestroyNode: the node's blocks stay with the graph, since the blocks of each node are not known.
struct NodeEnd {
  static CUresult Call(const RowInfo&, decltype(&::cuGraphDestroyNode) real, CUgraphNode node) {
    const CUresult result = real(node);
    if (result == CUDA_SUCCESS) GetHookState()->graphs.DropNode(node);
    return result;
  }
};
// (exec, stream): a launch that names what the nodes name. On a stream that is being captured its nodes
// become nodes of the captured graph, and may outlive the executable graph there.
struct GraphLaunched {
  static CUresult Call(const RowInfo& row, decltype(&::cuGraphLaunch) real, CUgraphExec exec,
                       CUstream stream);
};
// The graph is forgotten before the real call, since another thread may get the handle as soon as the driver
// has it back. If the driver refuses, nothing is known of the graph from then on.
struct GraphEnd {
  static CUresult Call(const RowInfo&, decltype(&::cuGraphDestroy) real, CUgraph graph) {
    GetHookState()->graphs.DropGraph(graph);
    return real(graph);
  }
};
// The executable graph is forgotten before the real call, as in GraphEnd.
struct ExecEnd {
  static CUresult Call(const RowInfo&, decltype(&::cuGraphExecDestroy) real, CUgraphExec exec) {
    GetHookState()->graphs.DropExec(exec);
    return real(exec);
  }
};

// (object*, resource, ...): the words of the resource are scanned, and the blocks that they name stay while
// the object exists. An array's words name no block of ours.
template <ObjectPins::Kind kKind>
struct ObjectMade {
  template <typename... Rest>
  static CUresult Call(const RowInfo& row, CUresult(CUDAAPI* real)(unsigned long long*, Rest...),
                       unsigned long long* object, Rest... rest) {
    HookScope scope;
    AccessSetBuilder* const builder = scope.builder();
    if (builder == nullptr) return real(object, rest...);  // no block yet, or inside another hooked call
    ResourceWords::Collect(builder, object, rest...);
    if (!builder->set().empty())
      builder->state()->pin_reports.Report(allocator::PinReason::kTexture, row.symbol);
    PinTicket ticket;
    const CUresult result =
        PassPinning(builder, allocator::PinReason::kTexture, &ticket, [&] { return real(object, rest...); });
    // An earlier object of that name was destroyed unseen. Its blocks stay until they are freed, as the
    // dropped ticket ends no pins.
    if (result == CUDA_SUCCESS && object != nullptr) {
      builder->state()->objects.Add(kKind, *object, std::move(ticket));
    }
    return result;
  }
};
// It is not known which streams still run kernels with the object, so the call waits for the device, as a
// free does. If the driver does not let the object go, its blocks stay until they are freed.
template <ObjectPins::Kind kKind>
struct ObjectEnd {
  static CUresult Call(const RowInfo&, CUresult(CUDAAPI* real)(unsigned long long),
                       unsigned long long object) {
    HookState* const state = GetHookState();
    PinTicket ticket = state->objects.Take(kKind, object);  // before the call, which frees the name
    const CUresult result = real(object);
    HookContext* const context = ContextOf(state);
    const auto synchronize = state->real.Ask<Row::cuCtxSynchronize>();
    if (result != CUDA_SUCCESS || ticket.blocks.empty() || context == nullptr || synchronize == nullptr)
      return result;
    // Waiting would break a capture. The blocks stay until they are freed then.
    if (state->captures.load() != 0 || synchronize() != CUDA_SUCCESS) return result;
    EndPins(context->devices, &ticket, {});
    return result;
  }
};

// Returns the bytes from the first to the last element of a tensor; at least 1. `strides` has those of the
// dimensions from the second on, in bytes, as the encoders take them. Packed elements of less than a byte
// count as one byte.
uint64_t TensorBytes(CUtensorMapDataType type, cuuint32_t rank, const cuuint64_t* sizes,
                     const cuuint64_t* strides);
// Records a map over memory of ours. If there is no place for it, pins its blocks; the result is then the
// gate's.
CUresult RecordTensorMap(const RowInfo& row, const CUtensorMap* map, uint64_t address, uint64_t bytes);

// The encoders: (map*, data type, rank, address, sizes, strides, ...). A map over memory of ours is recorded
// after the driver has written it, since it is found again by its bytes.
struct TensorMapEncoded {
  template <typename... Rest>
  static CUresult Call(const RowInfo& row,
                       CUresult(CUDAAPI* real)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                                               const cuuint64_t*, const cuuint64_t*, Rest...),
                       CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                       const cuuint64_t* sizes, const cuuint64_t* strides, Rest... rest) {
    const CUresult result = real(map, type, rank, address, sizes, strides, rest...);
    if (result != CUDA_SUCCESS) return result;
    return RecordTensorMap(row, map, AddressOf(address), TensorBytes(type, rank, sizes, strides));
  }
};
// cuTensorMapReplaceAddress: the map with its new address is recorded. The old content shows how many bytes
// it covers; a map that is not known is taken to lie in one block.
struct TensorMapMoved {
  static CUresult Call(const RowInfo& row, decltype(&::cuTensorMapReplaceAddress) real, CUtensorMap* map,
                       void* address);
};
// (map*, class, ...): the map is changed in place and leads where it led before. It is known by its bytes, so
// the new ones have to be recorded.
struct TensorMapReclassed {
  template <typename... Rest>
  static CUresult Call(const RowInfo& row, CUresult(CUDAAPI* real)(CUtensorMap*, Rest...), CUtensorMap* map,
                       Rest... rest) {
    const TensorMaps::Range known =
        map == nullptr ? TensorMaps::Range{} : GetHookState()->tensor_maps.Find(map);
    const CUresult result = real(map, rest...);
    if (result != CUDA_SUCCESS || known.bytes == 0) return result;
    return RecordTensorMap(row, map, known.address, known.bytes);
  }
};
// (address*, bytes*, module or library, name): the global is recorded, since small copies into it may be
// addresses. They count until they are overwritten, or until the module is unloaded (ModuleEnd).
struct GlobalFound {
  template <typename P, typename N, typename Module>
  static CUresult Call(const RowInfo&, CUresult(CUDAAPI* real)(P*, N*, Module, const char*), P* address,
                       N* bytes, Module module, const char* name) {
    N wanted = 0;  // the caller may pass null
    if (address != nullptr && bytes == nullptr) bytes = &wanted;
    HookState* const state = GetHookState();
    const CUresult result =
        CallWithRetry(state, kUnknownBytes, [&] { return real(address, bytes, module, name); });
    if (result == CUDA_SUCCESS && address != nullptr) state->tables.RecordGlobal(module, *address, *bytes);
    return result;
  }
};

// cuGetExportTable: tables of private functions of the driver. A table that is not known is logged, once for
// each library, and switches eviction off in strict mode. The call is inlined into the wrapper, so that the
// return address is the library's.
struct ExportTable {
  __attribute__((always_inline)) static CUresult Call(const RowInfo&, decltype(&::cuGetExportTable) real,
                                                      const void** table, const CUuuid* id) {
    const void* const caller = __builtin_return_address(0);  // in the library that asks
    const CUresult result = real(table, id);
    if (result == CUDA_SUCCESS && id != nullptr) Record(*id, caller);
    return result;
  }

 private:
  // Logs a table that is not known. The source lists the tables that are known and taken as harmless.
  static void Record(const CUuuid& id, const void* caller);
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_ESCAPED_FAMILIES_H_
