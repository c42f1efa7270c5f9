// What the design rests on first: the memory that is there, where addresses are given out, what is told of kernels'
// parameters, what a content hash and pinned memory cost.

#include <iterator>

#include "allocator/driver/device_hash.h"
#include "allocator/memory/address_map.h"
#include "allocator/tier/pinned_slab.h"
#include "tests/gpu/facts/facts.h"

namespace spillway::gpu {
namespace {

constexpr uint64_t kReservation = uint64_t{4} << 40;  // of one device, as the product makes it

// Sizes of a function's parameters, and what ended the list.
template <typename Handle, typename Query>
Json Layout(Handle handle, Query query) {
  if (query == nullptr) return {{"missing", true}};
  Json sizes = Json::array();
  size_t offset = 0, size = 0;
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < 16 && (result = query(handle, i, &offset, &size)) == CUDA_SUCCESS; ++i)
    sizes.push_back({offset, size});
  return {{"parameters", sizes}, {"ended_with", static_cast<int>(result)}};
}

int AttributeOf(int number) {
  int value = -1;
  const CUresult asked =
      GPU_FUNCTION(cuDeviceGetAttribute)(&value, static_cast<CUdevice_attribute>(number), 0);
  return asked == CUDA_SUCCESS ? value : -1;
}

}  // namespace

Json DeviceMemory(const FactSetup&) {
  size_t free_bytes = 0, total = 0;
  Gpu::Get().Must(GPU_FUNCTION(cuMemGetInfo_v2)(&free_bytes, &total), "cuMemGetInfo");
  Json attributes = Json::object();
  for (const int number : {134, 141, 145, 147}) attributes[std::to_string(number)] = AttributeOf(number);
  return {{"description", Gpu::Get().Description()},
          {"free_bytes", free_bytes},
          {"total_bytes", total},
          {"attributes", attributes}};
}

Json Placement(const FactSetup&) {
  const Gpu& gpu = Gpu::Get();
  Json rows = Json::array();
  std::vector<uint64_t> hints(std::begin(allocator::kAddressHints), std::end(allocator::kAddressHints));
  hints.insert(hints.begin(), 0);
  for (const uint64_t hint : hints) {
    CUdeviceptr start = 0;
    const CUresult result = gpu.driver().cuMemAddressReserve(&start, kReservation, 0, hint, 0);
    rows.push_back({{"hint", hint}, {"result", static_cast<int>(result)}, {"start", start}});
    if (result == CUDA_SUCCESS) (void)gpu.driver().cuMemAddressFree(start, kReservation);
  }
  return {{"rows", rows}};
}

Json ParameterLayouts(const FactSetup&) {
  const Gpu& gpu = Gpu::Get();
  const auto load = GPU_FUNCTION(cuLibraryLoadData);
  const auto find = GPU_FUNCTION(cuLibraryGetKernel);
  Json metrics = {{"function", Layout(gpu.fill(), GPU_FUNCTION(cuFuncGetParamInfo))}};
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  if (load == nullptr || find == nullptr) return metrics;
  gpu.Must(load(&library, gpu.code(), nullptr, nullptr, 0, nullptr, nullptr, 0), "cuLibraryLoadData");
  gpu.Must(find(&kernel, library, "spillway_fill"), "cuLibraryGetKernel");
  metrics["kernel"] = Layout(kernel, GPU_FUNCTION(cuKernelGetParamInfo));
  return metrics;
}

Json HashCost(const FactSetup& setup) {
  const Gpu& gpu = Gpu::Get();
  auto hash = allocator::DeviceHash::Create(&gpu.driver(), allocator::content_hash::KernelPtx());
  if (!hash.ok()) return {{"missing", std::string(hash.status().message())}};
  Mapping memory((setup.small ? 8 : 1024) * kMiB, 64 * kMiB);
  const CUstream stream = (*hash)->stream();
  gpu.Fill(stream, memory.address(), memory.bytes(), 1);
  std::vector<double> rates;
  for (int round = 0; round < 5; ++round) {
    gpu.Must(gpu.driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
    const Clock::time_point start = Clock::now();
    auto request = (*hash)->Enqueue(stream, memory.address(), memory.bytes());
    if (!request.ok()) return {{"missing", std::string(request.status().message())}};
    gpu.Must(gpu.driver().cuStreamSynchronize(stream), "hashing");
    rates.push_back(static_cast<double>(memory.bytes()) / MicrosSince(start) / 1e3);
    (*hash)->Drop(&*request);
  }
  return {{"bytes", memory.bytes()}, {"gb_per_s", Quantile(rates, 0.5)}};
}

Json PinningCost(const FactSetup& setup) {
  const Gpu& gpu = Gpu::Get();
  const uint64_t bytes = (setup.small ? 8 : 256) * kMiB;
  std::vector<double> in, out;
  for (int round = 0; round < 4; ++round) {
    Clock::time_point start = Clock::now();
    const auto slab = allocator::PinSlab(&gpu.driver(), gpu.context(), bytes);
    if (!slab.ok()) return {{"missing", std::string(slab.status().message())}};
    in.push_back(static_cast<double>(bytes) / MicrosSince(start) / 1e3);
    start = Clock::now();
    (void)allocator::UnpinSlab(&gpu.driver(), gpu.context(), *slab, bytes);
    out.push_back(static_cast<double>(bytes) / MicrosSince(start) / 1e3);
  }
  return {{"bytes", bytes}, {"pin_gb_per_s", Quantile(in, 0.5)}, {"unpin_gb_per_s", Quantile(out, 0.5)}};
}

}  // namespace spillway::gpu
