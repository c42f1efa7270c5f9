// Families for calls that let an address of ours go where no launch names it: nodes of graphs, textures and
// surfaces, tensor maps, globals of modules, tables of the driver's private functions. They run on the thread
// of the call, which is refused when its blocks cannot be pinned. HookState keeps what is pinned and what
// ends it. Pins that a change of graphs leaves without an owner come back as GraphPins::Ended, and
// EndGraphPins ends them with no lock held. docs/escaped-pointers.md says what is covered.

#ifndef SPILLWAY_INTEGRATION_HOOKS_ESCAPED_FAMILIES_H_
#define SPILLWAY_INTEGRATION_HOOKS_ESCAPED_FAMILIES_H_

#include <utility>

#include "integration/hooks/hook_context.h"
#include "integration/hooks/hook_families.h"
#include "integration/hooks/launch_access_sets.h"
#include "integration/hooks/launch_gate.h"

namespace spillway::integration {

// The graphs that a new node of `graph` runs: a child, or the bodies that the driver has made for it. Null:
// it is not known whose node that is, and what a child pins stays as long as the process.
void NoteGraphsAdded(GraphPins* graphs, CUgraph graph, CUgraphNode node, const CUgraphNodeParams& params);
// The node of the executable graph runs another child.
void NoteGraphsSet(GraphPins* graphs, CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams& params,
                   GraphPins::Ended* ended);
// The graphs that belong to a node whose parameters the driver gives out.
void NoteGraphsFound(GraphPins* graphs, const CUgraphNodeParams& params);

// A node is made, or gets other parameters. Its blocks stay as long as the graph that it belongs to; without
// a graph among the arguments, until they are freed. They are pinned before the real call, which is not made
// when that fails. The launches of the graph will name none.
struct NodeParameters {
  template <typename... A>
  static CUresult Call(const RowInfo& row, CUresult(CUDAAPI* real)(A...), A... args) {
    HookScope scope;
    AccessSetBuilder* const builder = scope.builder();
    const CUgraph graph = FirstOf<CUgraph>(args...);         // null where a node's parameters are set
    const CUgraphExec exec = FirstOf<CUgraphExec>(args...);  // null: a node of a graph
    if (builder == nullptr) {
      const CUresult result = real(args...);
      // No block exists yet. The graphs inside the node may get nodes that name one.
      if (result == CUDA_SUCCESS && !InsideHookedCall()) NoteGraphs(&GetHookState()->graphs, args...);
      return result;
    }
    GraphNode::Collect(builder, args...);
    if (!builder->set().empty())
      builder->state()->pin_reports.Report(allocator::PinReason::kGraph, row.symbol);
    PinTicket ticket;
    const bool owned = graph != nullptr || exec != nullptr;  // else: until the blocks are freed
    const CUresult result = PassPinning(builder, allocator::PinReason::kGraph, owned ? &ticket : nullptr,
                                        [&] { return real(args...); });
    if (result != CUDA_SUCCESS) return result;
    GraphPins& graphs = builder->state()->graphs;
    // Not of an executable graph: a node that is made, whose pins go with its graph, or one of a graph that
    // the call does not name.
    if (exec == nullptr) {
      if (owned) graphs.AddToGraph(graph, std::move(ticket));
      NoteGraphs(&graphs, args...);
      return result;
    }
    GraphPins::Ended ended;
    const CUgraphNode node = FirstOf<CUgraphNode>(args...);
    // A node of an executable graph: what it named before is given up, once its launches are done.
    graphs.SetNode(exec, node, std::move(ticket), &ended);
    if (const CUgraphNodeParams* const params = FirstOf<CUgraphNodeParams*>(args...))
      NoteGraphsSet(&graphs, exec, node, *params, &ended);
    EndGraphPins(builder->state(), &ended);
    return result;
  }

 private:
  // The graphs inside a node that is made, or gets other parameters, in a graph. They may get nodes that name
  // blocks when there are blocks.
  template <typename... A>
  static void NoteGraphs(GraphPins* graphs, A... args) {
    const CUgraphNodeParams* const params = FirstOf<CUgraphNodeParams*>(args...);
    if (params == nullptr || FirstOf<CUgraphExec>(args...) != nullptr) return;
    const CUgraph graph = FirstOf<CUgraph>(args...);
    CUgraphNode* const made = FirstOf<CUgraphNode*>(args...);
    // Without a graph among the arguments it is not known whose a child is that is put in.
    if (graph == nullptr) NoteGraphsAdded(graphs, nullptr, nullptr, *params);
    if (graph != nullptr && made != nullptr) NoteGraphsAdded(graphs, graph, *made, *params);
  }
};

// cuGraphCreate: the handle may be one that ended unseen, inside another graph.
struct GraphMade {
  static CUresult Call(const RowInfo&, decltype(&::cuGraphCreate) real, CUgraph* graph, unsigned int flags) {
    HookState* const state = GetHookState();
    const CUresult result = CallWithRetry(state, kUnknownBytes, [&] { return real(graph, flags); });
    if (result == CUDA_SUCCESS && graph != nullptr) state->graphs.NoteMade(*graph);
    return result;
  }
};

// (node*, graph, dependencies, count, child): the graph runs what the child runs, and owns its pins, too. The
// driver copies the child, which may end before the graph does.
struct ChildNode {
  static CUresult Call(const RowInfo&, decltype(&::cuGraphAddChildGraphNode) real, CUgraphNode* node,
                       CUgraph graph, const CUgraphNode* dependencies, size_t count, CUgraph child) {
    HookState* const state = GetHookState();
    const CUresult result =
        CallWithRetry(state, kUnknownBytes, [&] { return real(node, graph, dependencies, count, child); });
    if (result == CUDA_SUCCESS) state->graphs.Include(graph, child);
    return result;
  }
};
// (exec, node, child): the node of the executable graph runs another child, whose pins it then owns.
struct ChildParameters {
  static CUresult Call(const RowInfo&, decltype(&::cuGraphExecChildGraphNodeSetParams) real, CUgraphExec exec,
                       CUgraphNode node, CUgraph child) {
    HookState* const state = GetHookState();
    const CUresult result = CallWithRetry(state, kUnknownBytes, [&] { return real(exec, node, child); });
    GraphPins::Ended ended;
    if (result == CUDA_SUCCESS) state->graphs.SetChild(exec, node, child, &ended);
    EndGraphPins(state, &ended);
    return result;
  }
};
// (clone*, original): the clone owns the original's pins, too.
struct GraphCloned {
  static CUresult Call(const RowInfo&, decltype(&::cuGraphClone) real, CUgraph* clone, CUgraph original) {
    HookState* const state = GetHookState();
    const CUresult result = CallWithRetry(state, kUnknownBytes, [&] { return real(clone, original); });
    if (result != CUDA_SUCCESS || clone == nullptr) return result;
    state->graphs.NoteMade(*clone);
    state->graphs.Include(*clone, original);
    return result;
  }
};
// (exec*, graph, ...): the executable graph owns the graph's pins, too, and the graph may be destroyed. An
// earlier executable graph of that handle has ended unseen: its pins end here.
struct GraphInstantiated {
  template <typename... Rest>
  static CUresult Call(const RowInfo&, CUresult(CUDAAPI* real)(CUgraphExec*, CUgraph, Rest...),
                       CUgraphExec* exec, CUgraph graph, Rest... rest) {
    HookState* const state = GetHookState();
    const CUresult result = CallWithRetry(state, kUnknownBytes, [&] { return real(exec, graph, rest...); });
    GraphPins::Ended ended;
    if (result == CUDA_SUCCESS && exec != nullptr) state->graphs.Instantiate(*exec, graph, &ended);
    EndGraphPins(state, &ended);
    return result;
  }
};
// (exec, graph, ...): the executable graph's pins are replaced by the graph's. After a failed update the old
// ones stay.
struct ExecUpdated {
  template <typename... Rest>
  static CUresult Call(const RowInfo&, CUresult(CUDAAPI* real)(CUgraphExec, CUgraph, Rest...),
                       CUgraphExec exec, CUgraph graph, Rest... rest) {
    HookState* const state = GetHookState();
    const CUresult result = CallWithRetry(state, kUnknownBytes, [&] { return real(exec, graph, rest...); });
    GraphPins::Ended ended;
    if (result == CUDA_SUCCESS) state->graphs.Update(exec, graph, &ended);
    EndGraphPins(state, &ended);
    return result;
  }
};
// (node, graph*): the graph inside a node, or (node, parameters*): nodes may be added to it from now on.
struct InnerGraphFound {
  static CUresult Call(const RowInfo&, decltype(&::cuGraphChildGraphNodeGetGraph) real, CUgraphNode node,
                       CUgraph* graph) {
    const CUresult result = real(node, graph);
    if (result == CUDA_SUCCESS && graph != nullptr) GetHookState()->graphs.NoteInner(*graph);
    return result;
  }
  static CUresult Call(const RowInfo&, decltype(&::cuGraphNodeGetParams) real, CUgraphNode node,
                       CUgraphNodeParams* params) {
    const CUresult result = real(node, params);
    if (result != CUDA_SUCCESS || params == nullptr) return result;
    NoteGraphsFound(&GetHookState()->graphs, *params);
    if (ValueOf(params->type) == CU_GRAPH_NODE_TYPE_KERNEL)
      NoteKernelOfNode(&GetHookState()->functions, params->kernel);
    return result;
  }
};
// Its blocks stay with the graph, of whose pins it is not known which node they were for.
struct NodeEnd {
  static CUresult Call(const RowInfo&, decltype(&::cuGraphDestroyNode) real, CUgraphNode node) {
    const CUresult result = real(node);
    if (result == CUDA_SUCCESS) GetHookState()->graphs.DropNode(node);
    return result;
  }
};
// (exec, stream): its blocks are pinned already. The stream is noted, since they are in use there until the
// pins end. Noted before the real call: another thread may destroy the graph right after it.
struct GraphLaunched {
  static CUresult Call(const RowInfo& row, decltype(&::cuGraphLaunch) real, CUgraphExec exec,
                       CUstream stream) {
    HookState* const state = GetHookState();
    if (IsCapturing(*state, {stream, row.per_thread_default})) {
      // Its nodes become nodes of the graph that is captured, and may outlive it there.
      const CUresult result = CallWithRetry(state, kUnknownBytes, [&] { return real(exec, stream); });
      // Without an id, or a certain answer, nobody can tell when its pins are done with.
      const uint64_t capture = CaptureOf(*state, {stream, row.per_thread_default});
      if (result == CUDA_SUCCESS)
        state->graphs.AddExecToCapture(capture == 0 ? GraphPins::kUntoldCapture : capture, exec);
      return result;
    }
    state->graphs.NoteLaunch(exec, {stream, row.per_thread_default});
    return CallWithoutBlocks(state, row.tag, {stream, row.per_thread_default},
                             [&] { return real(exec, stream); });
  }
};
// The graph gives up its pins. Those that an executable graph or a clone owns as well go on. Given up before
// the real call, since another thread may get the handle as soon as the driver has it back. Where the driver refuses,
// the graph may live on: its blocks then stay until they are freed.
struct GraphEnd {
  static CUresult Call(const RowInfo&, decltype(&::cuGraphDestroy) real, CUgraph graph) {
    GraphPins::Ended ended;
    GetHookState()->graphs.DropGraph(graph, &ended);
    const CUresult result = real(graph);
    if (result == CUDA_SUCCESS) EndGraphPins(GetHookState(), &ended);
    return result;
  }
};
// The executable graph gives up its pins, as above. A block leaves only after its launches are done, on every stream
// that was noted for it.
struct ExecEnd {
  static CUresult Call(const RowInfo&, decltype(&::cuGraphExecDestroy) real, CUgraphExec exec) {
    GraphPins::Ended ended;
    GetHookState()->graphs.DropExec(exec, &ended);
    const CUresult result = real(exec);
    if (result == CUDA_SUCCESS) EndGraphPins(GetHookState(), &ended);
    return result;
  }
};

// (object*, resource, ...): the words of the resource are looked through, and the blocks that they name stay
// while the object exists. Those of an array are not ours.
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
    // An earlier object of that name was destroyed unseen: its blocks stay until they are freed.
    if (result == CUDA_SUCCESS && object != nullptr) {
      builder->state()->objects.Add(kKind, *object, std::move(ticket));
    }
    return result;
  }
};
// It is not known which streams still run kernels with the object. So the call waits for the device, as a
// free does. The blocks of an object that the driver does not let go of stay until they are freed.
template <ObjectPins::Kind kKind>
struct ObjectEnd {
  static CUresult Call(const RowInfo&, CUresult(CUDAAPI* real)(unsigned long long),
                       unsigned long long object) {
    HookState* const state = GetHookState();
    PinTicket ticket = state->objects.Take(kKind, object);  // before: the name may be given out again
    const CUresult result = real(object);
    HookContext* const context = ContextOf(state);
    const auto synchronize = state->real.Ask<Row::cuCtxSynchronize>();
    if (result != CUDA_SUCCESS || ticket.blocks.empty() || context == nullptr || synchronize == nullptr)
      return result;
    // Not during a capture, which waiting would break. The blocks then stay until they are freed.
    if (state->captures.load() != 0 || synchronize() != CUDA_SUCCESS) return result;
    EndPins(context->devices, &ticket, {});
    return result;
  }
};

// Bytes from the first to the last element of a tensor; at least 1. `strides` are of the dimensions from the
// second on, in bytes, as the encoders take them. Packed elements of less than a byte count as one.
uint64_t TensorBytes(CUtensorMapDataType type, cuuint32_t rank, const cuuint64_t* sizes,
                     const cuuint64_t* strides);
// Remembers a map over memory of ours. When there is no place for it, pins its blocks; the result is then the
// gate's.
CUresult NoteTensorMap(const RowInfo& row, const CUtensorMap* map, uint64_t address, uint64_t bytes);

// The encoders: (map*, data type, rank, address, sizes, strides, ...). A map over memory of ours is noted,
// once the driver has written it, since it is found again by its bytes.
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
// cuTensorMapReplaceAddress: the map with its new address is noted. The old content says how many bytes it
// covers; a map that is not known is taken to lie in one block.
struct TensorMapMoved {
  static CUresult Call(const RowInfo& row, decltype(&::cuTensorMapReplaceAddress) real, CUtensorMap* map,
                       void* address);
};
// (map*, class, ...): the map is changed in place and leads where it led before. It is known by its bytes, so
// that the new ones have to be noted.
struct TensorMapReclassed {
  template <typename... Rest>
  static CUresult Call(const RowInfo& row, CUresult(CUDAAPI* real)(CUtensorMap*, Rest...), CUtensorMap* map,
                       Rest... rest) {
    const TensorMaps::Range known =
        map == nullptr ? TensorMaps::Range{} : GetHookState()->tensor_maps.Find(map);
    const CUresult result = real(map, rest...);
    if (result != CUDA_SUCCESS || known.bytes == 0) return result;
    return NoteTensorMap(row, map, known.address, known.bytes);
  }
};
// (address*, bytes*, module or library, name): the global is noted, since small copies into it may be
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
    if (result == CUDA_SUCCESS && address != nullptr) state->tables.NoteGlobal(module, *address, *bytes);
    return result;
  }
};

// cuGetExportTable: tables of private functions of the driver. One that is not known is logged, once for each
// library, and in strict mode switches eviction off. Inlined into the wrapper, so that the return address is
// that of the library.
struct ExportTable {
  __attribute__((always_inline)) static CUresult Call(const RowInfo&, decltype(&::cuGetExportTable) real,
                                                      const void** table, const CUuuid* id) {
    const void* const caller = __builtin_return_address(0);  // in the library that asks
    const CUresult result = real(table, id);
    if (result == CUDA_SUCCESS && id != nullptr) Note(*id, caller);
    return result;
  }

 private:
  // The tables that are known, and taken as harmless, stand in the source.
  static void Note(const CUuuid& id, const void* caller);
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_ESCAPED_FAMILIES_H_
