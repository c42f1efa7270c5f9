// Driver functions: devices and their attributes. The device looks like a data-centre GPU of compute
// capability 9.0, because that is what the wheels' host code expects to find; nothing on the host side
// depends on the figures.
#include <cstdio>
#include <cstring>

#include "integration/simcuda/driver/core/fail_points.h"
#include "integration/simcuda/driver/core/settings.h"
#include "integration/simcuda/driver/machine/driver.h"
#include "integration/simcuda/driver/machine/visible_devices.h"

namespace simcuda {
namespace {

struct AttributeRow {
  CUdevice_attribute attribute;
  int value;
};

// An attribute that is not listed is 0: absent.
constexpr AttributeRow kAttributes[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 48 << 10},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 64 << 10},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 2619000},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 5120},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 50 << 20},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 2},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 228 << 10},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
    {CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 227 << 10},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, 1},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE, 32 << 20},
    {CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE, 128 << 20},
    {CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1},
};

// HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, from 13.0 on.
constexpr auto kHostVmm = static_cast<CUdevice_attribute>(145);

int AttributeOf(const Device& device, CUdevice_attribute attribute) {
  if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) return device.ordinal() + 1;
  const int capability = static_cast<int>(GetSettings().compute_capability.load());
  if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) return capability / 10;
  if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) return capability % 10;
  const bool host_handles = GetSettings().host_handles.load() != 0;
  if (attribute == CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED || attribute == kHostVmm)
    return host_handles ? 1 : 0;
  if (attribute == CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID) return kHostNode;
  for (const AttributeRow& row : kAttributes) {
    if (row.attribute == attribute) return row.value;
  }
  return 0;
}

// The same in every run, another for each device.
CUresult Uuid(CUuuid* uuid, CUdevice ordinal) {
  Device* device = nullptr;
  if (CUresult result = EnterDevice(ordinal, &device); result != CUDA_SUCCESS) return result;
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(uuid->bytes, DeviceUuid(device->number()).data(), sizeof(uuid->bytes));
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace simcuda

using simcuda::Device;
using simcuda::EnterDevice;

SIMCUDA_API CUresult cuDeviceGetCount(int* count) {
  SIMCUDA_FAIL_POINT(cuDeviceGetCount);
  if (!simcuda::IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = simcuda::DeviceCount();
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  SIMCUDA_FAIL_POINT(cuDeviceGet);
  Device* found = nullptr;
  if (CUresult result = EnterDevice(ordinal, &found); result != CUDA_SUCCESS) return result;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuDeviceGetName(char* name, int length, CUdevice ordinal) {
  SIMCUDA_FAIL_POINT(cuDeviceGetName);
  Device* device = nullptr;
  if (CUresult result = EnterDevice(ordinal, &device); result != CUDA_SUCCESS) return result;
  if (name == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(name, static_cast<size_t>(length), "simcuda (host memory)");
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) { return simcuda::Uuid(uuid, device); }
SIMCUDA_API CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  SIMCUDA_FAIL_POINT(cuDeviceGetUuid_v2);
  return simcuda::Uuid(uuid, device);
}

SIMCUDA_API CUresult cuDeviceGetLuid(char* luid, unsigned int* mask, CUdevice ordinal) {
  Device* device = nullptr;
  if (CUresult result = EnterDevice(ordinal, &device); result != CUDA_SUCCESS) return result;
  return CUDA_ERROR_NOT_SUPPORTED;  // Windows only
}

SIMCUDA_API CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice ordinal) {
  SIMCUDA_FAIL_POINT(cuDeviceTotalMem_v2);
  Device* device = nullptr;
  if (CUresult result = EnterDevice(ordinal, &device); result != CUDA_SUCCESS) return result;
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = device->capacity();
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice ordinal) {
  SIMCUDA_FAIL_POINT(cuDeviceGetAttribute);
  Device* device = nullptr;
  if (CUresult result = EnterDevice(ordinal, &device); result != CUDA_SUCCESS) return result;
  // Attributes of toolkits newer than the headers that this was built with are known to be absent, too.
  constexpr int kMaxAttributes = 512;
  if (value == nullptr || attribute < 1 || static_cast<int>(attribute) >= kMaxAttributes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *value = simcuda::AttributeOf(*device, attribute);
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice ordinal) {
  if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = cuDeviceGetAttribute(major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, ordinal);
  if (result != CUDA_SUCCESS) return result;
  return cuDeviceGetAttribute(minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, ordinal);
}

SIMCUDA_API CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice ordinal) {
  SIMCUDA_FAIL_POINT(cuDeviceGetPCIBusId);
  Device* device = nullptr;
  if (CUresult result = EnterDevice(ordinal, &device); result != CUDA_SUCCESS) return result;
  if (text == nullptr || length < 13) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(text, static_cast<size_t>(length), "0000:%02x:00.0", ordinal + 1);
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuDeviceGetByPCIBusId(CUdevice* device, const char* text) {
  if (!simcuda::IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  if (device == nullptr || text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (int ordinal = 0; ordinal < simcuda::DeviceCount(); ++ordinal) {
    char own[16] = "";
    cuDeviceGetPCIBusId(own, sizeof(own), ordinal);
    if (std::strcmp(own, text) != 0) continue;
    *device = ordinal;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

SIMCUDA_API CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  Device* found = nullptr;
  if (CUresult result = EnterDevice(device, &found); result != CUDA_SUCCESS) return result;
  if (CUresult result = EnterDevice(peer, &found); result != CUDA_SUCCESS) return result;
  if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *can = device != peer ? 1 : 0;
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice device,
                                             CUdevice peer) {
  int can = 0;
  if (CUresult result = cuDeviceCanAccessPeer(&can, device, peer); result != CUDA_SUCCESS) return result;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *value = attribute == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED ? can : 0;
  return CUDA_SUCCESS;
}
