// What the driver answers about addresses: attributes, handles, reservations, and a handle at two addresses.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>

#include "tests/gpu/facts/facts.h"

namespace spillway::gpu {
namespace {

constexpr uint64_t kChunk = 2 * kMiB;
constexpr uint64_t kTiB = uint64_t{1} << 40;
constexpr size_t kAnswerBytes = 32;

constexpr std::pair<CUpointer_attribute, const char*> kBooleans[] = {
    {CU_POINTER_ATTRIBUTE_MAPPED, "MAPPED"},
    {CU_POINTER_ATTRIBUTE_IS_MANAGED, "IS_MANAGED"},
    {CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, "SYNC_MEMOPS"},
    {CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, "IS_LEGACY_CUDA_IPC_CAPABLE"},
    {CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, "IS_GPU_DIRECT_RDMA_CAPABLE"}};

// How much of a poisoned buffer a query writes. A byte that it leaves alone has both poisons, one after the
// other.
Json WrittenBytes(const std::function<CUresult(void* data)>& ask) {
  unsigned char data[2][kAnswerBytes];
  CUresult result = CUDA_SUCCESS;
  for (int i = 0; i < 2; ++i) {
    std::memset(data[i], i == 0 ? 0xA5 : 0x5A, kAnswerBytes);
    result = ask(data[i]);
  }
  size_t width = 0;
  for (size_t i = 0; i < kAnswerBytes; ++i) {
    if (data[0][i] != 0xA5 || data[1][i] != 0x5A) width = i + 1;
  }
  uint64_t value = 0;
  std::memcpy(&value, data[0], std::min(width, sizeof(value)));
  return {{"result", static_cast<int>(result)}, {"bytes", width}, {"value", value}};
}

// The booleans of one address by both queries, and where its range lies seen from `start`.
Json AttributesOf(CUdeviceptr address, CUdeviceptr start) {
  const auto one = Find<decltype(&::cuPointerGetAttribute)>("cuPointerGetAttribute");
  const auto several = Find<decltype(&::cuPointerGetAttributes)>("cuPointerGetAttributes");
  Json answers = Json::object();
  for (const auto& [attribute, name] : kBooleans) {
    answers[name] = WrittenBytes([&, kind = attribute](void* data) { return one(data, kind, address); });
    answers[std::string(name) + " of several"] = WrittenBytes([&, kind = attribute](void* data) {
      CUpointer_attribute asked = kind;
      return several(1, &asked, &data, address);
    });
  }
  const auto range = Find<decltype(&::cuMemGetAddressRange_v2)>("cuMemGetAddressRange_v2");
  const auto described = [&](CUresult result, CUdeviceptr base, size_t bytes) -> Json {
    if (result != CUDA_SUCCESS) return {{"result", static_cast<int>(result)}};
    return {{"result", 0}, {"offset_of_start", static_cast<int64_t>(base - start)}, {"bytes", bytes}};
  };
  CUdeviceptr base = 0;
  size_t bytes = 0;
  CUresult result = one(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address);
  if (result == CUDA_SUCCESS) result = one(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address);
  answers["range"] = described(result, base, bytes);
  result = range(&base, &bytes, address);
  answers["cuMemGetAddressRange"] = described(result, base, bytes);
  return answers;
}

CUmemGenericAllocationHandle NewHandle() {
  const Gpu& gpu = Gpu::Get();
  CUmemAllocationProp kind = {};
  kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle handle = 0;
  gpu.Must(gpu.driver().cuMemCreate(&handle, kChunk, &kind, 0), "cuMemCreate");
  return handle;
}

CUresult Allow(CUdeviceptr address, CUmemAccess_flags flags) {
  CUmemAccessDesc access = {};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = flags;
  return Gpu::Get().driver().cuMemSetAccess(address, kChunk, &access, 1);
}

// One handle at two addresses, the second for reading only.
struct TwoAddresses {
  TwoAddresses() {
    const Gpu& gpu = Gpu::Get();
    for (CUdeviceptr* address : {&first, &second}) {
      gpu.Must(gpu.driver().cuMemAddressReserve(address, kChunk, 0, 0, 0), "cuMemAddressReserve");
    }
    gpu.Must(gpu.driver().cuMemMap(first, kChunk, 0, handle, 0), "cuMemMap");
    gpu.Must(Allow(first, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), "cuMemSetAccess");
    map_again = gpu.driver().cuMemMap(second, kChunk, 0, handle, 0);
    if (map_again == CUDA_SUCCESS) read_only = Allow(second, CU_MEM_ACCESS_FLAGS_PROT_READ);
  }
  const CUmemGenericAllocationHandle handle = NewHandle();
  CUdeviceptr first = 0, second = 0;
  CUresult map_again = CUDA_SUCCESS, read_only = CUDA_ERROR_NOT_SUPPORTED;
};

// Counts words on the device. Made before the addresses are reserved that it looks at.
class Comparison {
 public:
  Comparison() { found_.Register(); }
  // Words at `address` that Fill with `seed` would not have written.
  uint32_t Differences(CUdeviceptr address, uint32_t seed) {
    const Gpu& gpu = Gpu::Get();
    uint32_t words = 0;
    std::memcpy(found_.at(0), &words, sizeof(words));
    gpu.Must(gpu.driver().cuMemcpyHtoDAsync_v2(counter_.address(), found_.at(0), 4, stream_), "a copy");
    gpu.Compare(stream_, address, kChunk, seed, counter_.address());
    gpu.Must(gpu.driver().cuMemcpyDtoHAsync_v2(found_.at(0), counter_.address(), 4, stream_), "a copy");
    gpu.Must(gpu.driver().cuStreamSynchronize(stream_), "cuStreamSynchronize");
    std::memcpy(&words, found_.at(0), sizeof(words));
    return words;
  }

 private:
  const Mapping counter_{kChunk};
  HostMemory found_{4096};
  const CUstream stream_ = Gpu::Get().NewStream();
};

}  // namespace

Json PointerAttributes(const FactSetup&) {
  const Gpu& gpu = Gpu::Get();
  CUdeviceptr plain = 0;
  gpu.Must(gpu.mem_alloc(&plain, 4 * kMiB), "cuMemAlloc");
  Mapping block(4 * kChunk, kChunk);  // several handles in one reservation
  const CUdeviceptr second = block.address() + kChunk + 512;
  Json answers = {{"cuMemAlloc", AttributesOf(plain + 512, plain)},
                  {"mapped", AttributesOf(second, block.address())}};
  gpu.Must(block.Unmap(), "cuMemUnmap");
  answers["reserved, not mapped"] = AttributesOf(second, block.address());
  gpu.Must(gpu.mem_free(plain), "cuMemFree");
  answers["freed"] = AttributesOf(plain, plain);
  return {{"handle_bytes", kChunk}, {"offset", kChunk + 512}, {"answers", answers}};
}

Json TwoMappings(const FactSetup& setup) {
  const Gpu& gpu = Gpu::Get();
  Comparison comparison;
  const TwoAddresses memory;
  Json metrics = {{"second_map", static_cast<int>(memory.map_again)},
                  {"read_only_access", static_cast<int>(memory.read_only)}};
  if (memory.map_again != CUDA_SUCCESS || memory.read_only != CUDA_SUCCESS) return metrics;
  const CUstream stream = gpu.NewStream();
  gpu.Fill(stream, memory.first, kChunk, 7);
  gpu.Must(gpu.driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
  if (setup.variant == "write") {  // ends the context where a GPU forbids it
    uint64_t words = kChunk / 4;
    uint32_t seed = 8;
    CUdeviceptr address = memory.second;
    void* parameters[] = {&address, &words, &seed};
    const CUresult launched =
        gpu.launch_kernel(gpu.fill(), 1, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr);
    const CUresult ended = gpu.driver().cuStreamSynchronize(stream);
    metrics["write"] = {{"launch", static_cast<int>(launched)}, {"synchronize", static_cast<int>(ended)}};
    if (ended == CUDA_SUCCESS) metrics["write"]["took_effect"] = comparison.Differences(memory.first, 8) == 0;
    return metrics;
  }
  metrics["differences_first"] = comparison.Differences(memory.first, 7);
  metrics["differences_second"] = comparison.Differences(memory.second, 7);
  // A mapping of its own outlives the other.
  metrics["unmap_first"] = static_cast<int>(gpu.driver().cuMemUnmap(memory.first, kChunk));
  metrics["differences_second_alone"] = comparison.Differences(memory.second, 7);
  return metrics;
}

Json Reservations(const FactSetup&) {
  const Gpu& gpu = Gpu::Get();
  Comparison comparison;
  Json rows = Json::array();
  for (const uint64_t bytes : {kTiB, 4 * kTiB, 16 * kTiB, 64 * kTiB}) {
    CUdeviceptr start = 0;
    Clock::time_point from = Clock::now();
    const CUresult result = gpu.driver().cuMemAddressReserve(&start, bytes, 0, 0, 0);
    Json row = {{"bytes", bytes}, {"result", static_cast<int>(result)}, {"us", MicrosSince(from)}};
    if (result == CUDA_SUCCESS) {
      const CUmemGenericAllocationHandle handle = NewHandle();
      const CUdeviceptr last = start + bytes - kChunk;
      from = Clock::now();
      row["map_at_the_end"] = static_cast<int>(gpu.driver().cuMemMap(last, kChunk, 0, handle, 0));
      row["access_at_the_end"] = static_cast<int>(Allow(last, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
      row["map_us"] = MicrosSince(from);
      if (row["access_at_the_end"] == 0) {
        gpu.Fill(gpu.NewStream(), last, kChunk, 3);
        gpu.Synchronize();
        row["differences"] = comparison.Differences(last, 3);
      }
      (void)gpu.driver().cuMemUnmap(last, kChunk);
      (void)gpu.driver().cuMemRelease(handle);
      from = Clock::now();
      row["free"] = static_cast<int>(gpu.driver().cuMemAddressFree(start, bytes));
      row["free_us"] = MicrosSince(from);
    }
    rows.push_back(row);
  }
  return {{"rows", rows}};
}

Json RetainedHandles(const FactSetup&) {
  const Gpu& gpu = Gpu::Get();
  const auto retain = Find<decltype(&::cuMemRetainAllocationHandle)>("cuMemRetainAllocationHandle");
  if (retain == nullptr) return {{"missing", "cuMemRetainAllocationHandle"}};
  CUdeviceptr plain = 0, address = 0;
  gpu.Must(gpu.mem_alloc(&plain, 4 * kMiB), "cuMemAlloc");
  gpu.Must(gpu.driver().cuMemAddressReserve(&address, 2 * kChunk, 0, 0, 0), "cuMemAddressReserve");
  const CUmemGenericAllocationHandle handle = NewHandle();
  gpu.Must(gpu.driver().cuMemMap(address, kChunk, 0, handle, 0), "cuMemMap");
  HostMemory host(kMiB);
  host.Register();
  const auto ask = [&](CUdeviceptr at) -> Json {
    CUmemGenericAllocationHandle found = 0;
    const CUresult result = retain(&found, reinterpret_cast<void*>(at));
    Json answer = {{"result", static_cast<int>(result)}};
    if (result != CUDA_SUCCESS) return answer;
    answer["the_handle"] = found == handle;
    answer["release"] = static_cast<int>(gpu.driver().cuMemRelease(found));
    return answer;
  };
  Json answers = {{"cuMemAlloc", ask(plain)},
                  {"mapped, no access", ask(address)},
                  {"reserved, not mapped", ask(address + kChunk)},
                  {"registered host memory", ask(reinterpret_cast<CUdeviceptr>(host.at(0)))}};
  gpu.Must(Allow(address, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), "cuMemSetAccess");
  answers["mapped"] = ask(address);
  answers["mapped, inside"] = ask(address + 512);
  return answers;
}

}  // namespace spillway::gpu
