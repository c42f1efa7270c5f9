// Driver functions: user objects, whose destroy callback runs when the last reference (the caller's, a
// graph's, an executable graph's) is gone.
#include <unordered_set>

#include "integration/simcuda/driver/graphs/graph.h"
#include "integration/simcuda/driver/machine/driver.h"

namespace simcuda {

struct UserObject {
  void* pointer;
  CUhostFn destroy;
  unsigned long long references;
};

namespace {

std::unordered_set<const void*>& LiveObjects() {  // guarded by GraphMutex
  static auto* live = new std::unordered_set<const void*>;
  return *live;
}

UserObject* FromHandle(CUuserObject handle) {
  return LiveObjects().count(handle) != 0 ? reinterpret_cast<UserObject*>(handle) : nullptr;
}

// The callback may not call the driver, so it may run under the lock.
void Drop(UserObject* object, unsigned long long count) {
  object->references -= count;
  if (object->references != 0) return;
  LiveObjects().erase(object);
  object->destroy(object->pointer);
  delete object;
}

CUresult Retain(CUuserObject handle, unsigned int count) {
  if (!IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  const std::lock_guard<std::mutex> lock(GraphMutex());
  UserObject* object = FromHandle(handle);
  if (object == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  object->references += count;
  return CUDA_SUCCESS;
}

CUresult Release(CUuserObject handle, unsigned int count) {
  if (!IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  const std::lock_guard<std::mutex> lock(GraphMutex());
  UserObject* object = FromHandle(handle);
  if (object == nullptr || count == 0 || count > object->references) return CUDA_ERROR_INVALID_VALUE;
  Drop(object, count);
  return CUDA_SUCCESS;
}

}  // namespace

void RetainUserObjects(const std::map<UserObject*, unsigned>& objects) {
  for (const auto& [object, count] : objects) object->references += count;
}

void ReleaseUserObjects(std::map<UserObject*, unsigned>* objects) {
  for (const auto& [object, count] : *objects) Drop(object, count);
  objects->clear();
}

}  // namespace simcuda

SIMCUDA_API CUresult cuUserObjectCreate(CUuserObject* handle, void* pointer, CUhostFn destroy,
                                        unsigned int references, unsigned int flags) {
  if (!simcuda::IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  if (handle == nullptr || destroy == nullptr || references == 0 ||
      flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
    return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard<std::mutex> lock(simcuda::GraphMutex());
  auto* object = new simcuda::UserObject{pointer, destroy, references};
  simcuda::LiveObjects().insert(object);
  *handle = reinterpret_cast<CUuserObject>(object);
  return CUDA_SUCCESS;
}
SIMCUDA_API CUresult cuUserObjectRetain(CUuserObject handle, unsigned int count) {
  return simcuda::Retain(handle, count);
}
SIMCUDA_API CUresult cuUserObjectRelease(CUuserObject handle, unsigned int count) {
  return simcuda::Release(handle, count);
}

SIMCUDA_API CUresult cuGraphRetainUserObject(CUgraph graph_handle, CUuserObject handle, unsigned int count,
                                             unsigned int flags) {
  if (!simcuda::IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  const std::lock_guard<std::mutex> lock(simcuda::GraphMutex());
  simcuda::Graph* graph = simcuda::Graph::FromHandle(graph_handle);
  simcuda::UserObject* object = simcuda::FromHandle(handle);
  const bool move = flags == CU_GRAPH_USER_OBJECT_MOVE;
  if (graph == nullptr || object == nullptr || count == 0 || (flags != 0 && !move) ||
      (move && count > object->references)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  graph->user_objects[object] += count;
  if (!move) object->references += count;
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuGraphReleaseUserObject(CUgraph graph_handle, CUuserObject handle, unsigned int count) {
  if (!simcuda::IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  const std::lock_guard<std::mutex> lock(simcuda::GraphMutex());
  simcuda::Graph* graph = simcuda::Graph::FromHandle(graph_handle);
  simcuda::UserObject* object = simcuda::FromHandle(handle);
  if (graph == nullptr || object == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto held = graph->user_objects.find(object);
  if (held == graph->user_objects.end() || count == 0 || count > held->second)
    return CUDA_ERROR_INVALID_VALUE;
  held->second -= count;
  if (held->second == 0) graph->user_objects.erase(held);
  simcuda::Drop(object, count);
  return CUDA_SUCCESS;
}
