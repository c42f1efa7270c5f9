#include "integration/simcuda/driver/graphs/capture.h"

#include <algorithm>
#include <atomic>
#include <memory>

namespace simcuda {
namespace {

struct Capture {
  struct Strand {                        // one stream of the capture
    std::vector<GraphNode*> nodes;       // what its next operation comes after
    std::vector<CUgraphEdgeData> edges;  // of those that were given with data, by place; may be shorter
  };
  uint64_t id = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  const void* thread = nullptr;  // that began it
  Stream* origin = nullptr;
  Graph* graph = nullptr;
  bool owns_graph = true;
  bool valid = true;
  std::map<Stream*, Strand> strands;
};

struct CaptureTable {
  std::mutex mutex;  // guards the rest
  uint64_t last_id = 0;
  std::vector<std::unique_ptr<Capture>> captures;
};
CaptureTable& GetTable() {
  static auto* table = new CaptureTable;
  return *table;
}

// Number of captures under way; written under the table's lock, read without it by every call that might meet
// one.
std::atomic<int> g_captures{0};

thread_local CUstreamCaptureMode t_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

// An address of the thread's own.
const void* ThisThread() {
  thread_local char here;
  return &here;
}

using Lock = std::lock_guard<std::mutex>;

bool AnyCapture() { return g_captures.load() != 0; }

Capture* FindLocked(Stream& stream) {
  for (const auto& capture : GetTable().captures) {
    if (capture->strands.count(&stream) != 0) return capture.get();
  }
  return nullptr;
}

Capture* FindByIdLocked(uint64_t id) {
  for (const auto& capture : GetTable().captures) {
    if (capture->id == id) return capture.get();
  }
  return nullptr;
}

void DropLocked(Capture* capture) {
  std::erase_if(GetTable().captures, [capture](const auto& other) { return other.get() == capture; });
  --g_captures;
}

CUresult Invalidate(Capture* capture, CUresult error) {
  capture->valid = false;
  return error;
}

bool IsBlocking(const Stream& stream) { return stream.kind() != StreamKind::kNonBlocking; }

void AddOnce(const std::vector<GraphNode*>& more, std::vector<GraphNode*>* nodes) {
  for (GraphNode* node : more) {
    if (std::find(nodes->begin(), nodes->end(), node) == nodes->end()) nodes->push_back(node);
  }
}

// The graph's nodes of the handles; false when one is none.
bool NodesOf(const Graph* graph, const CUgraphNode* handles, size_t count, std::vector<GraphNode*>* nodes) {
  if (count != 0 && handles == nullptr) return false;
  for (size_t i = 0; i < count; ++i) {
    GraphNode* node = Graph::NodeFromHandle(handles[i]);
    if (node == nullptr || node->graph != graph) return false;
    AddOnce({node}, nodes);
  }
  return true;
}

// Use of the legacy stream would make streams that are captured wait for it.
enum class Harm { kInvalidates, kNone };
CUresult CheckLegacyLocked(Stream& legacy, Harm harm = Harm::kInvalidates) {
  CUresult result = CUDA_SUCCESS;
  for (const auto& capture : GetTable().captures) {
    for (const auto& [stream, strand] : capture->strands) {
      if (stream->context() != legacy.context() || !IsBlocking(*stream)) continue;
      result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
      if (harm == Harm::kInvalidates) capture->valid = false;
    }
  }
  return result;
}

CUresult CheckUnsafeLocked() {
  if (t_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  for (const auto& capture : GetTable().captures) {
    const bool own = capture->thread == ThisThread() && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool others =
        t_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (own || others) result = Invalidate(capture.get(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  return result;
}

// The stream is going away.
void AbandonCapture(Stream& stream) {
  if (!AnyCapture()) return;
  const Lock lock(GetTable().mutex);
  const Lock graph_lock(GraphMutex());
  Capture* capture = FindLocked(stream);
  if (capture == nullptr) return;
  capture->valid = false;
  capture->strands.erase(&stream);
  if (capture->origin != &stream) return;
  if (capture->owns_graph) capture->graph->Destroy();
  DropLocked(capture);
}

}  // namespace

CUresult BeginCapture(Stream& stream, CUstreamCaptureMode mode, CUgraph graph,
                      const CUgraphNode* dependencies, size_t count) {
  Context::BeforeClose(&AbandonCapture);
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  if (stream.kind() == StreamKind::kLegacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  CaptureTable& table = GetTable();
  const Lock lock(table.mutex);
  const Lock graph_lock(GraphMutex());
  if (FindLocked(stream) != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  auto capture = std::make_unique<Capture>();
  std::vector<GraphNode*> start;
  if (graph != nullptr) {
    capture->graph = Graph::FromHandle(graph);
    capture->owns_graph = false;
    if (capture->graph == nullptr || !NodesOf(capture->graph, dependencies, count, &start))
      return CUDA_ERROR_INVALID_VALUE;
  } else {
    capture->graph = Graph::Create();
  }
  capture->id = ++table.last_id;
  capture->mode = mode;
  capture->thread = ThisThread();
  capture->origin = &stream;
  capture->strands[&stream].nodes = std::move(start);
  table.captures.push_back(std::move(capture));
  ++g_captures;
  return CUDA_SUCCESS;
}

CUresult EndCapture(Stream& stream, CUgraph* graph) {
  *graph = nullptr;
  if (!AnyCapture()) return CUDA_ERROR_ILLEGAL_STATE;
  const Lock lock(GetTable().mutex);
  const Lock graph_lock(GraphMutex());
  Capture* capture = FindLocked(stream);
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != &stream) return Invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != ThisThread())
    return Invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  CUresult result = capture->valid ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  const std::vector<GraphNode*>& last = capture->strands[&stream].nodes;
  for (const auto& [other, strand] : capture->strands) {
    if (result == CUDA_SUCCESS && !Graph::Reaches(last, strand.nodes))
      result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  }
  if (result == CUDA_SUCCESS) {
    *graph = capture->graph->handle();
  } else if (capture->owns_graph) {
    capture->graph->Destroy();
  }
  DropLocked(capture);
  return result;
}

CUresult GetCaptureInfo(Stream& stream, CaptureInfo* info) {
  *info = {};
  if (!AnyCapture()) return CUDA_SUCCESS;
  const Lock lock(GetTable().mutex);
  if (stream.kind() == StreamKind::kLegacy) return CheckLegacyLocked(stream, Harm::kNone);
  Capture* capture = FindLocked(stream);
  if (capture == nullptr) return CUDA_SUCCESS;
  info->id = capture->id;
  info->status = capture->valid ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  if (!capture->valid) return CUDA_SUCCESS;
  Capture::Strand& strand = capture->strands[&stream];
  strand.edges.resize(strand.nodes.size());
  info->graph = capture->graph->handle();
  info->dependencies = reinterpret_cast<const CUgraphNode*>(strand.nodes.data());
  info->edges = strand.edges.data();
  info->count = strand.nodes.size();
  const auto has_data = [](const CUgraphEdgeData& edge) {
    return edge.from_port != 0 || edge.to_port != 0 || edge.type != 0;
  };
  info->has_edge_data = std::any_of(strand.edges.begin(), strand.edges.end(), has_data);
  return CUDA_SUCCESS;
}

CUresult UpdateCaptureDependencies(Stream& stream, const CUgraphNode* handles, const CUgraphEdgeData* edges,
                                   size_t count, unsigned int flags) {
  if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(GetTable().mutex);
  const Lock graph_lock(GraphMutex());
  Capture* capture = FindLocked(stream);
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (!capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  std::vector<GraphNode*> nodes;
  if (!NodesOf(capture->graph, handles, count, &nodes)) return CUDA_ERROR_INVALID_VALUE;
  Capture::Strand& strand = capture->strands[&stream];
  if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) strand = {};
  for (size_t i = 0; i < count; ++i) {
    const size_t known = strand.nodes.size();
    AddOnce({nodes[i]}, &strand.nodes);
    if (edges == nullptr || strand.nodes.size() == known) continue;
    strand.edges.resize(known);
    strand.edges.push_back(edges[i]);
  }
  return CUDA_SUCCESS;
}

CUresult ExchangeCaptureMode(CUstreamCaptureMode* mode) {
  if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  std::swap(t_mode, *mode);
  return CUDA_SUCCESS;
}

CUresult EnterQueueing(Stream& stream, bool* capturing) {
  *capturing = false;
  if (!AnyCapture()) return CUDA_SUCCESS;
  const Lock lock(GetTable().mutex);
  if (stream.kind() == StreamKind::kLegacy) return CheckLegacyLocked(stream);
  const Capture* capture = FindLocked(stream);
  if (capture == nullptr) return CUDA_SUCCESS;
  *capturing = true;
  return capture->valid ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

CUresult RecordOperation(Stream& stream, OperationPtr operation) {
  const Lock lock(GetTable().mutex);
  const Lock graph_lock(GraphMutex());
  Capture* capture = FindLocked(stream);
  if (capture == nullptr || !capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  Capture::Strand& strand = capture->strands[&stream];
  strand = {{capture->graph->Add(std::move(operation), strand.nodes)}, {}};
  return CUDA_SUCCESS;
}

CUresult RecordPlace(Stream& stream, CapturedPlace* place) {
  const Lock lock(GetTable().mutex);
  Capture* capture = FindLocked(stream);
  if (capture == nullptr || !capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  *place = {capture->id, capture->strands[&stream].nodes};
  return CUDA_SUCCESS;
}

CUresult WaitForPlace(Stream& stream, const CapturedPlace& place, bool recorded, bool* done) {
  *done = false;
  if (!AnyCapture()) return place.capture != 0 ? CUDA_ERROR_CAPTURED_EVENT : CUDA_SUCCESS;
  const Lock lock(GetTable().mutex);
  Capture* waiting = FindLocked(stream);
  if (waiting != nullptr && !waiting->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (place.capture == 0) {
    if (stream.kind() == StreamKind::kLegacy) return CheckLegacyLocked(stream);
    *done = waiting != nullptr;
    return waiting != nullptr && recorded ? Invalidate(waiting, CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
                                          : CUDA_SUCCESS;
  }
  *done = true;
  Capture* source = FindByIdLocked(place.capture);
  if (source == nullptr) return CUDA_ERROR_CAPTURED_EVENT;  // its capture has ended
  if (!source->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream.kind() == StreamKind::kLegacy) return Invalidate(source, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  if (waiting != nullptr && waiting != source) {
    waiting->valid = false;
    return Invalidate(source, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  }
  AddOnce(place.nodes, &source->strands[&stream].nodes);
  return CUDA_SUCCESS;
}

CUresult CheckEventUse(const CapturedPlace& place) {
  if (place.capture == 0) return CheckUnsafeCall();
  const Lock lock(GetTable().mutex);
  Capture* capture = FindByIdLocked(place.capture);
  return capture == nullptr ? CUDA_ERROR_CAPTURED_EVENT : Invalidate(capture, CUDA_ERROR_CAPTURED_EVENT);
}

CUresult CheckStreamUse(Stream& stream) {
  if (!AnyCapture()) return CUDA_SUCCESS;
  const Lock lock(GetTable().mutex);
  if (stream.kind() == StreamKind::kLegacy) {
    if (CUresult result = CheckLegacyLocked(stream); result != CUDA_SUCCESS) return result;
  }
  Capture* capture = FindLocked(stream);
  return capture == nullptr ? CheckUnsafeLocked()
                            : Invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

CUresult CheckContextUse(Context& context) {
  if (!AnyCapture()) return CUDA_SUCCESS;
  const Lock lock(GetTable().mutex);
  CUresult result = CUDA_SUCCESS;
  for (const auto& capture : GetTable().captures) {
    for (const auto& [stream, strand] : capture->strands) {
      if (stream->context() == &context)
        result = Invalidate(capture.get(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
  }
  return result;
}

CUresult CheckUnsafeCall() {
  if (!AnyCapture()) return CUDA_SUCCESS;
  const Lock lock(GetTable().mutex);
  return CheckUnsafeLocked();
}

}  // namespace simcuda
