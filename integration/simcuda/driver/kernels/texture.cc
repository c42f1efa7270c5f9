// Driver functions: texture and surface objects. A texture object is a number that stands for a stretch of
// linear device memory; nothing samples it. Surfaces want arrays, which are not there.
#include <map>
#include <mutex>

#include "integration/simcuda/driver/execution/context.h"
#include "integration/simcuda/driver/memory/address_space.h"

namespace simcuda {
namespace {

struct Texture {
  CUDA_RESOURCE_DESC resource;
  CUDA_TEXTURE_DESC texture;
};

struct TextureTable {
  std::mutex mutex;  // guards the rest
  CUtexObject last = 0;
  std::map<CUtexObject, Texture> textures;
};
TextureTable& GetTextureTable() {
  static auto* table = new TextureTable;
  return *table;
}

constexpr uint64_t kTextureAlignment = 512;

// Address and bytes of a linear or pitched resource.
void Extent(const CUDA_RESOURCE_DESC& resource, uint64_t* address, uint64_t* bytes) {
  const bool linear = resource.resType == CU_RESOURCE_TYPE_LINEAR;
  *address = linear ? resource.res.linear.devPtr : resource.res.pitch2D.devPtr;
  *bytes = linear ? resource.res.linear.sizeInBytes
                  : resource.res.pitch2D.pitchInBytes * resource.res.pitch2D.height;
}

CUresult CheckResource(const CUDA_RESOURCE_DESC& resource) {
  if (resource.flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (resource.resType == CU_RESOURCE_TYPE_ARRAY || resource.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY)
    return CUDA_ERROR_NOT_SUPPORTED;
  uint64_t address = 0;
  uint64_t bytes = 0;
  Extent(resource, &address, &bytes);
  const bool there = address % kTextureAlignment == 0 && bytes != 0 && GetAddressSpace().Find(address).mapped;
  return there ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Calls with the texture of the handle.
template <typename Call>
CUresult WithTexture(CUtexObject handle, const Call& call) {
  Context* context = nullptr;
  if (CUresult result = EnterContext(&context); result != CUDA_SUCCESS) return result;
  TextureTable& table = GetTextureTable();
  std::lock_guard<std::mutex> lock(table.mutex);
  const auto found = table.textures.find(handle);
  if (found == table.textures.end()) return CUDA_ERROR_INVALID_VALUE;
  call(found);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace simcuda

SIMCUDA_API CUresult cuTexObjectCreate(CUtexObject* handle, const CUDA_RESOURCE_DESC* resource,
                                       const CUDA_TEXTURE_DESC* texture,
                                       const CUDA_RESOURCE_VIEW_DESC* view) {
  simcuda::Context* context = nullptr;
  if (CUresult result = simcuda::EnterContext(&context); result != CUDA_SUCCESS) return result;
  // Views are for arrays.
  if (handle == nullptr || resource == nullptr || texture == nullptr || view != nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  if (CUresult result = simcuda::CheckResource(*resource); result != CUDA_SUCCESS) return result;
  simcuda::TextureTable& table = simcuda::GetTextureTable();
  std::lock_guard<std::mutex> lock(table.mutex);
  *handle = ++table.last;
  table.textures[*handle] = {*resource, *texture};
  return CUDA_SUCCESS;
}
SIMCUDA_API CUresult cuTexObjectDestroy(CUtexObject handle) {
  return simcuda::WithTexture(handle, [](auto found) { simcuda::GetTextureTable().textures.erase(found); });
}
SIMCUDA_API CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* resource, CUtexObject handle) {
  if (resource == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return simcuda::WithTexture(handle, [resource](auto found) { *resource = found->second.resource; });
}
SIMCUDA_API CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* texture, CUtexObject handle) {
  if (texture == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return simcuda::WithTexture(handle, [texture](auto found) { *texture = found->second.texture; });
}

SIMCUDA_API CUresult cuSurfObjectCreate(CUsurfObject* handle, const CUDA_RESOURCE_DESC* resource) {
  simcuda::Context* context = nullptr;
  if (CUresult result = simcuda::EnterContext(&context); result != CUDA_SUCCESS) return result;
  if (handle == nullptr || resource == nullptr || resource->resType != CU_RESOURCE_TYPE_ARRAY)
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_ERROR_NOT_SUPPORTED;
}
SIMCUDA_API CUresult cuSurfObjectDestroy(CUsurfObject) { return CUDA_ERROR_INVALID_VALUE; }

SIMCUDA_API int simcuda_texture_memory(uint64_t handle, uint64_t* address, uint64_t* bytes) {
  simcuda::TextureTable& table = simcuda::GetTextureTable();
  std::lock_guard<std::mutex> lock(table.mutex);
  const auto found = table.textures.find(handle);
  if (found == table.textures.end() || address == nullptr || bytes == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  simcuda::Extent(found->second.resource, address, bytes);
  return CUDA_SUCCESS;
}
