// Devices: count, properties, choice of the current one, synchronization, peers, versions. Contexts themselves
// are context.h's; the operator library, opened at the first successful count, is operator_library.h's.
#include <cstring>
#include <type_traits>

#include "integration/simcuda/runtime/context.h"
#include "integration/simcuda/runtime/operator_library.h"

namespace simcuda {
namespace {

struct PropertyRow {
  CUdevice_attribute attribute;
  void (*store)(cudaDeviceProp* prop, int value);
};

constexpr PropertyRow kProperties[] = {
#define DEVICE_PROPERTY(field, name)                                                   \
  {CU_DEVICE_ATTRIBUTE_##name, [](cudaDeviceProp* prop, int value) {                   \
     prop->field = static_cast<std::remove_reference_t<decltype(prop->field)>>(value); \
   }},
#include "integration/simcuda/runtime/device_properties.def"
#undef DEVICE_PROPERTY
};

// The runtime's attributes share the driver's numbers; spot checks over the range.
static_assert(static_cast<int>(cudaDevAttrMaxThreadsPerBlock) == CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
static_assert(static_cast<int>(cudaDevAttrComputeCapabilityMajor) ==
              CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(static_cast<int>(cudaDevAttrMemoryPoolsSupported) ==
              CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
static_assert(static_cast<int>(cudaDevAttrHostNumaId) == CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID);

CUresult FillProperties(const DriverTable& driver, CUdevice device, cudaDeviceProp* prop) {
  *prop = cudaDeviceProp{};
  CUresult result = driver.DeviceGetName(prop->name, sizeof(prop->name), device);
  if (result == CUDA_SUCCESS) result = driver.DeviceTotalMem(&prop->totalGlobalMem, device);
  if (result != CUDA_SUCCESS) return result;
  CUuuid uuid{};
  if (driver.DeviceGetUuid(&uuid, device) == CUDA_SUCCESS) {
    static_assert(sizeof(uuid) == sizeof(prop->uuid));
    std::memcpy(&prop->uuid, &uuid, sizeof(uuid));
  }
  for (const PropertyRow& row : kProperties) {
    int value = 0;
    // An attribute that the driver does not know stays 0.
    if (driver.DeviceGetAttribute(&value, row.attribute, device) == CUDA_SUCCESS) row.store(prop, value);
  }
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace simcuda

using simcuda::DriverTable;
using simcuda::WithContext;
using simcuda::WithDriver;

cudaError_t cudaGetDeviceCount(int* count) {
  if (count == nullptr) return simcuda::Record(cudaErrorInvalidValue);
  *count = 0;
  const cudaError_t error = WithDriver([&](const DriverTable& driver) {
    const cudaError_t counted = simcuda::ToRuntimeError(driver.DeviceGetCount(count));
    return counted == cudaSuccess && *count == 0 ? cudaErrorNoDevice : counted;
  });
  if (error == cudaSuccess) simcuda::OpenOperatorLibraryOnce();
  return error;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
  if (prop == nullptr) return simcuda::Record(cudaErrorInvalidValue);
  return WithDriver([&](const DriverTable& driver) {
    CUdevice handle = 0;
    const CUresult result = driver.DeviceGet(&handle, device);
    return result == CUDA_SUCCESS ? simcuda::FillProperties(driver, handle, prop) : result;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attr, int device) {
  return WithDriver([&](const DriverTable& driver) {
    CUdevice handle = 0;
    const CUresult result = driver.DeviceGet(&handle, device);
    if (result != CUDA_SUCCESS) return result;
    return driver.DeviceGetAttribute(value, static_cast<CUdevice_attribute>(attr), handle);
  });
}

cudaError_t cudaSetDevice(int device) {
  return WithDriver([&](const DriverTable& driver) { return simcuda::BindDevice(driver, device); });
}

cudaError_t cudaInitDevice(int device, unsigned int flags, unsigned int) {
  if (flags != 0) return simcuda::Record(cudaErrorInvalidValue);
  return WithDriver([&](const DriverTable& driver) {
    CUcontext context = nullptr;
    return simcuda::PrimaryContext(driver, device, &context);
  });
}

cudaError_t cudaGetDevice(int* device) {
  if (device == nullptr) return simcuda::Record(cudaErrorInvalidValue);
  return WithDriver([&](const DriverTable& driver) {
    CUcontext current = nullptr;
    const CUresult result = driver.CtxGetCurrent(&current);
    if (result != CUDA_SUCCESS) return result;
    // A context that was made current by driver calls counts as well as cudaSetDevice.
    if (current != nullptr) return driver.CtxGetDevice(device);
    *device = simcuda::ThreadDevice();
    return CUDA_SUCCESS;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return WithContext([](const DriverTable& driver) { return driver.CtxSynchronize(); });
}

cudaError_t cudaDeviceReset() {
  return WithContext([](const DriverTable& driver) {
    CUdevice device = 0;
    CUresult result = driver.CtxGetDevice(&device);
    if (result == CUDA_SUCCESS) result = driver.DevicePrimaryCtxReset(device);
    if (result == CUDA_SUCCESS) {
      simcuda::ForgetPrimaryContext(device);
      result = driver.CtxSetCurrent(nullptr);
    }
    return result;
  });
}

cudaError_t cudaSetDeviceFlags(unsigned int flags) {
  return WithDriver([&](const DriverTable& driver) {
    return driver.DevicePrimaryCtxSetFlags(simcuda::ThreadDevice(), flags);
  });
}

cudaError_t cudaGetDeviceFlags(unsigned int* flags) {
  return WithDriver([&](const DriverTable& driver) {
    int active = 0;
    return driver.DevicePrimaryCtxGetState(simcuda::ThreadDevice(), flags, &active);
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* bus_id, int length, int device) {
  return WithDriver(
      [&](const DriverTable& driver) { return driver.DeviceGetPCIBusId(bus_id, length, device); });
}

cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* bus_id) {
  return WithDriver([&](const DriverTable& driver) { return driver.DeviceGetByPCIBusId(device, bus_id); });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return WithContext(
      [&](const DriverTable& driver) { return driver.CtxGetStreamPriorityRange(least, greatest); });
}

cudaError_t cudaDeviceCanAccessPeer(int* can_access, int device, int peer_device) {
  return WithDriver(
      [&](const DriverTable& driver) { return driver.DeviceCanAccessPeer(can_access, device, peer_device); });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer_device, unsigned int flags) {
  return WithContext([&](const DriverTable& driver) {
    CUcontext peer = nullptr;
    const cudaError_t error = simcuda::PrimaryContext(driver, peer_device, &peer);
    return error != cudaSuccess ? error : simcuda::ToRuntimeError(driver.CtxEnablePeerAccess(peer, flags));
  });
}

cudaError_t cudaDeviceDisablePeerAccess(int peer_device) {
  return WithContext([&](const DriverTable& driver) {
    CUcontext peer = nullptr;
    const cudaError_t error = simcuda::PrimaryContext(driver, peer_device, &peer);
    return error != cudaSuccess ? error : simcuda::ToRuntimeError(driver.CtxDisablePeerAccess(peer));
  });
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  if (version == nullptr) return simcuda::Record(cudaErrorInvalidValue);
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  if (version == nullptr) return simcuda::Record(cudaErrorInvalidValue);
  // The one query that works without cuInit; 0 means that there is no driver.
  *version = 0;
  const DriverTable* driver = simcuda::LoadedDriver();
  return driver == nullptr ? cudaSuccess
                           : simcuda::Record(simcuda::ToRuntimeError(driver->DriverGetVersion(version)));
}
