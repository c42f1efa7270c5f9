#include "allocator/tier/host_handles.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "io/os/errno.h"

namespace spillway::allocator {
namespace {

CUmemAccessDesc ReadWrite(CUmemLocationType type, int id) {
  CUmemAccessDesc access = {};
  access.location.type = type;
  access.location.id = id;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return access;
}

std::vector<CUmemAccessDesc> DevicesOf(const HostReach& reach) {
  std::vector<CUmemAccessDesc> access;
  for (const int device : reach.devices) access.push_back(ReadWrite(CU_MEM_LOCATION_TYPE_DEVICE, device));
  return access;
}

CUmemAllocationProp HandleOf(const HostReach& reach) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
  properties.location.id = reach.node;
  return properties;
}

CUdeviceptr AddressOf(const HandleSlab& slab) { return reinterpret_cast<CUdeviceptr>(slab.start); }

absl::Status CreateAndMap(const CudaDriver* driver, const HostReach& reach, uint64_t buffer_bytes,
                          size_t count, HandleSlab* slab) {
  const CUmemAllocationProp properties = HandleOf(reach);
  const CUdeviceptr start = AddressOf(*slab);
  for (size_t i = 0; i < count; ++i) {
    CUmemGenericAllocationHandle handle = 0;
    CUresult result =
        driver->memory_turn->Run([&] { return driver->cuMemCreate(&handle, buffer_bytes, &properties, 0); });
    SPILLWAY_RETURN_IF_ERROR(driver->ToStatus(result, "creating a handle in host memory"));
    result = driver->memory_turn->Run(
        [&] { return driver->cuMemMap(start + i * buffer_bytes, buffer_bytes, 0, handle, 0); });
    if (result != CUDA_SUCCESS) {
      driver->memory_turn->Run([&] { return driver->cuMemRelease(handle); });
      return driver->ToStatus(result, "mapping a handle of host memory");
    }
    slab->handles.push_back(handle);
  }
  std::vector<CUmemAccessDesc> access = DevicesOf(reach);
  access.push_back(ReadWrite(CU_MEM_LOCATION_TYPE_HOST_NUMA, reach.node));
  const CUresult result = driver->memory_turn->Run(
      [&] { return driver->cuMemSetAccess(start, count * buffer_bytes, access.data(), access.size()); });
  return driver->ToStatus(result, "making host memory accessible");
}

constexpr size_t kTriedBytes = 4096;

// Copies from the first buffer's own address to `there`, at which the second buffer is mapped but not the
// first, and back. `queued` tells that a copy may still be under way, because the driver does not report its
// end.
absl::Status TryCopies(const CudaDriver* driver, const HandleSlab& slab, uint64_t buffer_bytes,
                       CUdeviceptr there, bool* queued) {
  std::byte* const from = slab.start;
  std::byte* const behind = slab.start + buffer_bytes;  // the buffer at `there`, by its own address
  for (size_t i = 0; i < kTriedBytes; ++i) from[i] = static_cast<std::byte>(i * 7 + i / 256);
  std::memset(behind, 0, kTriedBytes);
  const auto carried_out = [&](CUresult enqueued, const char* what) {
    SPILLWAY_RETURN_IF_ERROR(driver->ToStatus(enqueued, what));
    const CUresult ended = driver->cuStreamSynchronize(CU_STREAM_PER_THREAD);
    *queued = ended != CUDA_SUCCESS;
    SPILLWAY_RETURN_IF_ERROR(driver->ToStatus(ended, what));
    return std::memcmp(from, behind, kTriedBytes) == 0
               ? absl::OkStatus()
               : absl::InternalError(std::string(what) + ": the bytes differ");
  };
  SPILLWAY_RETURN_IF_ERROR(
      carried_out(driver->cuMemcpyHtoDAsync_v2(there, from, kTriedBytes, CU_STREAM_PER_THREAD),
                  "copying from host memory made of handles"));
  std::memset(from, 0, kTriedBytes);
  return carried_out(driver->cuMemcpyDtoHAsync_v2(from, there, kTriedBytes, CU_STREAM_PER_THREAD),
                     "copying into host memory made of handles");
}

}  // namespace

absl::StatusOr<HostReach> FindHostReach(const CudaDriver* driver, int devices) {
  HostReach reach;
  for (int device = 0; device < devices; ++device) {
    int can = 0, node = -1;
    SPILLWAY_RETURN_IF_ERROR(
        driver->ToStatus(driver->cuDeviceGetAttribute(
                             &can, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device),
                         "asking whether a device reaches handles in host memory"));
    SPILLWAY_RETURN_IF_ERROR(
        driver->ToStatus(driver->cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device),
                         "asking for a device's node of host memory"));
    if (can == 0) return HostReach();                 // the host tier is shared by all devices
    if (device == 0) reach.node = std::max(node, 0);  // -1: the machine has one node
    reach.devices.push_back(device);
  }
  return reach;
}

absl::Status TryHostReach(const CudaDriver* driver, CUcontext context, const HostReach& reach,
                          uint64_t buffer_bytes) {
  ScopedContext scope(driver, context);
  SPILLWAY_ASSIGN_OR_RETURN(const HandleSlab slab, MakeHandleSlab(driver, context, reach, buffer_bytes, 2));
  CUdeviceptr there = 0;
  absl::Status status = driver->ToStatus(driver->cuMemAddressReserve(&there, buffer_bytes, 0, 0, 0),
                                         "reserving a device's address for host memory");
  if (status.ok()) {
    status = driver->ToStatus(driver->cuMemMap(there, buffer_bytes, 0, slab.handles[1], 0),
                              "mapping host memory at a device's address");
    if (status.ok()) {
      const std::vector<CUmemAccessDesc> access = DevicesOf(reach);
      status = driver->ToStatus(driver->cuMemSetAccess(there, buffer_bytes, access.data(), access.size()),
                                "making host memory accessible at a device's address");
      bool queued = false;
      if (status.ok()) status = TryCopies(driver, slab, buffer_bytes, there, &queued);
      if (queued) return status;  // nothing of it is given back
      status.Update(driver->ToStatus(driver->cuMemUnmap(there, buffer_bytes), "unmapping host memory"));
    }
    driver->cuMemAddressFree(there, buffer_bytes);
  }
  FreeHandleSlab(driver, context, buffer_bytes, slab);
  return status;
}

absl::StatusOr<HandleSlab> MakeHandleSlab(const CudaDriver* driver, CUcontext context, const HostReach& reach,
                                          uint64_t buffer_bytes, size_t count) {
  ScopedContext scope(driver, context);
  // A buffer behind the slab stays empty, so that no copy spans two slabs.
  const uint64_t address_bytes = (count + 1) * buffer_bytes;
  CUdeviceptr start = 0;
  SPILLWAY_RETURN_IF_ERROR(driver->ToStatus(driver->cuMemAddressReserve(&start, address_bytes, 0, 0, 0),
                                            "reserving addresses for host memory"));
  HandleSlab slab{reinterpret_cast<std::byte*>(start), address_bytes, {}};
  absl::Status status = CreateAndMap(driver, reach, buffer_bytes, count, &slab);
  if (status.ok()) return slab;
  FreeHandleSlab(driver, context, buffer_bytes, slab);
  return status;
}

void FreeHandleSlab(const CudaDriver* driver, CUcontext context, uint64_t buffer_bytes,
                    const HandleSlab& slab) {
  ScopedContext scope(driver, context);
  const CUdeviceptr start = AddressOf(slab);
  if (!slab.handles.empty())
    driver->memory_turn->Run([&] { return driver->cuMemUnmap(start, slab.handles.size() * buffer_bytes); });
  for (const CUmemGenericAllocationHandle handle : slab.handles)
    driver->memory_turn->Run([&] { return driver->cuMemRelease(handle); });
  driver->cuMemAddressFree(start, slab.address_bytes);
}

}  // namespace spillway::allocator
