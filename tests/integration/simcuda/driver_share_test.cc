// Textures, handles for other processes, and peer access: as far as an application's calls of them must be seen.
#include <unistd.h>

#include <cstring>

#include "tests/integration/simcuda/driver_test_base.h"

namespace simcuda_test {
namespace {

class DriverShareTest : public DriverTest {};

CUDA_RESOURCE_DESC LinearResource(CUdeviceptr pointer, size_t bytes) {
  CUDA_RESOURCE_DESC resource = {};
  resource.resType = CU_RESOURCE_TYPE_LINEAR;
  resource.res.linear.devPtr = pointer;
  resource.res.linear.format = CU_AD_FORMAT_FLOAT;
  resource.res.linear.numChannels = 1;
  resource.res.linear.sizeInBytes = bytes;
  return resource;
}

TEST_F(DriverShareTest, TextureObjectStandsForLinearMemory) {
  CUdeviceptr pointer = 0;
  ASSERT_EQ(cuMemAlloc(&pointer, kMiB), CUDA_SUCCESS);
  CUDA_RESOURCE_DESC resource = LinearResource(pointer, 4096);
  const CUDA_TEXTURE_DESC texture = {};
  CUtexObject object = 0;
  ASSERT_EQ(cuTexObjectCreate(&object, &resource, &texture, nullptr), CUDA_SUCCESS);
  uint64_t address = 0;
  uint64_t bytes = 0;
  EXPECT_EQ(simcuda_texture_memory(object, &address, &bytes), 0);
  EXPECT_EQ(address, pointer);
  EXPECT_EQ(bytes, 4096u);
  CUDA_RESOURCE_DESC read = {};
  EXPECT_EQ(cuTexObjectGetResourceDesc(&read, object), CUDA_SUCCESS);
  EXPECT_EQ(read.res.linear.devPtr, pointer);
  EXPECT_EQ(cuTexObjectDestroy(object), CUDA_SUCCESS);
  EXPECT_EQ(cuTexObjectDestroy(object), CUDA_ERROR_INVALID_VALUE);
  resource = LinearResource(pointer + 4, 4096);
  EXPECT_EQ(cuTexObjectCreate(&object, &resource, &texture, nullptr), CUDA_ERROR_INVALID_VALUE);
  CUsurfObject surface = 0;
  EXPECT_EQ(cuSurfObjectCreate(&surface, &resource), CUDA_ERROR_INVALID_VALUE);  // wants an array
  EXPECT_EQ(cuMemFree(pointer), CUDA_SUCCESS);
}

TEST_F(DriverShareTest, IpcHandlesOfAllocationsOnly) {
  CUdeviceptr pointer = 0;
  ASSERT_EQ(cuMemAlloc(&pointer, kMiB), CUDA_SUCCESS);
  CUipcMemHandle handle = {};
  CUipcMemHandle inside = {};
  ASSERT_EQ(cuIpcGetMemHandle(&handle, pointer), CUDA_SUCCESS);
  ASSERT_EQ(cuIpcGetMemHandle(&inside, pointer + 4096), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(&handle, &inside, sizeof(handle)), 0);
  CUdeviceptr opened = 0;
  EXPECT_EQ(cuIpcOpenMemHandle(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
            CUDA_ERROR_INVALID_CONTEXT);
  Range range(kChunk);
  Chunk chunk;
  chunk.MapAt(range.start);
  EXPECT_EQ(cuIpcGetMemHandle(&handle, range.start), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemUnmap(range.start, kChunk), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(pointer), CUDA_SUCCESS);
}

TEST_F(DriverShareTest, DescriptorsOfHandlesThatWereMadeForThem) {
  CUmemAllocationProp properties = DeviceMemory();
  CUmemGenericAllocationHandle plain = 0;
  CUmemGenericAllocationHandle shared = 0;
  ASSERT_EQ(cuMemCreate(&plain, kChunk, &properties, 0), CUDA_SUCCESS);
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  ASSERT_EQ(cuMemCreate(&shared, kChunk, &properties, 0), CUDA_SUCCESS);
  int descriptor = -1;
  EXPECT_EQ(cuMemExportToShareableHandle(&descriptor, plain, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuMemExportToShareableHandle(&descriptor, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_SUCCESS);
  CUmemGenericAllocationHandle imported = 0;
  ASSERT_EQ(cuMemImportFromShareableHandle(&imported, reinterpret_cast<void*>(intptr_t{descriptor}),
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            CUDA_SUCCESS);
  close(descriptor);
  const uint64_t held = Stats().physical_bytes[0];
  EXPECT_EQ(cuMemRelease(shared), CUDA_SUCCESS);
  EXPECT_EQ(Stats().physical_bytes[0], held);  // the import holds it
  EXPECT_EQ(cuMemRelease(imported), CUDA_SUCCESS);
  EXPECT_EQ(Stats().physical_bytes[0], held - kChunk);
  EXPECT_EQ(cuMemRelease(plain), CUDA_SUCCESS);
}

TEST_F(DriverShareTest, PeerAccessIsSwitchedOnOnce) {
  CUcontext other = nullptr;
  CUcontext own = nullptr;
  int can = 0;
  ASSERT_EQ(cuDeviceCanAccessPeer(&can, 0, 1), CUDA_SUCCESS);
  EXPECT_EQ(can, 1);
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&other, 1), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxGetCurrent(&own), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxDisablePeerAccess(other), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  EXPECT_EQ(cuCtxEnablePeerAccess(other, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuCtxEnablePeerAccess(own, 0), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cuCtxEnablePeerAccess(other, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxEnablePeerAccess(other, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  EXPECT_EQ(cuCtxDisablePeerAccess(other), CUDA_SUCCESS);
}

TEST_F(DriverShareTest, PeerCopyBetweenDevices) {
  CUcontext own = nullptr;
  CUcontext other = nullptr;
  ASSERT_EQ(cuCtxGetCurrent(&own), CUDA_SUCCESS);
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&other, 1), CUDA_SUCCESS);
  CUdeviceptr here = 0;
  CUdeviceptr there = 0;
  ASSERT_EQ(cuMemAlloc(&here, 4096), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxPushCurrent(other), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAlloc(&there, 4096), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxPopCurrent(nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuMemsetD8(here, 42, 4096), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyPeerAsync(there, other, here, own, 4096, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(*At<unsigned char>(there + 4095), 42);
  ASSERT_EQ(cuCtxPushCurrent(other), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(there), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxPopCurrent(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(here), CUDA_SUCCESS);
}

}  // namespace
}  // namespace simcuda_test
