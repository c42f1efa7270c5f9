#include "bench/gate_library.h"

#include <map>
#include <memory>
#include <string>

#include "allocator/driver/cuda_driver.h"
#include "allocator/memory/address_map.h"
#include "allocator/residency/residency.h"
#include "allocator/tier/host_pool.h"
#include "bench/null_driver.h"
#include "integration/hooks/hook_table.h"
#include "integration/prediction/predictor.h"
#include "io/os/check.h"

namespace spillway::bench {
namespace {

constexpr uint64_t kChunkBytes = 2 << 20;
constexpr uint64_t kSpaceBytes = uint64_t{256} << 30;

// Everything, for as long as the process lives.
struct Gate {
  std::map<std::string, void*> wrappers;
  std::unique_ptr<const allocator::CudaDriver> driver;
  std::unique_ptr<allocator::AddressMap> addresses;
  std::unique_ptr<allocator::HostPool> host;
  std::unique_ptr<integration::Predictor> predictor;
  std::unique_ptr<allocator::Residency> residency;
  integration::HookContext context;
};
Gate* gate = nullptr;

void Build(bool predict) {
  gate = new Gate;
  integration::InstallHooks(&NullDriverFunction, [](const char* symbol, void* wrapper) {
    gate->wrappers[symbol] = wrapper;
    return 0;
  });
  gate->driver = *allocator::CudaDriver::Load(&NullDriverFunction);
  gate->addresses = *allocator::AddressMap::Reserve(gate->driver.get(), 1, kSpaceBytes, kChunkBytes);
  allocator::HostPool::Options host;
  host.buffer_bytes = kChunkBytes;
  host.storage_bytes = 64 << 20;
  host.slab_bytes = 64 << 20;
  host.evict_staging_buffers = host.fault_staging_buffers = 0;
  gate->host = *allocator::HostPool::Create(gate->driver.get(), nullptr, host);
  allocator::ResidencyOptions options;
  options.budget_bytes = kSpaceBytes / 2;
  allocator::ResidencyParts parts;
  parts.driver = gate->driver.get();
  parts.addresses = gate->addresses.get();
  parts.host = gate->host.get();
  if (predict) {
    integration::PredictorOptions prediction;
    prediction.driver = gate->driver.get();  // sampled launches are timed, as in the product
    gate->predictor = std::make_unique<integration::Predictor>(prediction);
    parts.observer = gate->predictor.get();
  }
  gate->residency = *allocator::Residency::Create(options, parts);
  if (predict) SPILLWAY_CHECK(gate->predictor->Start(gate->residency.get()).ok());
  gate->context.addresses = gate->addresses.get();
  integration::AttachDevice(&gate->context, 0, gate->residency.get(), nullptr);
  integration::PublishHookContext(&gate->context);
}

constexpr spillway_gate_bench kInterface = {
    [](const char* symbol) -> void* {
      const auto found = gate->wrappers.find(symbol);
      return found == gate->wrappers.end() ? nullptr : found->second;
    },
    [](uint64_t bytes) -> uint64_t { return gate->residency->Allocate(bytes, {}).value(); },
    [](uint64_t address) { SPILLWAY_CHECK(gate->residency->Free(address).ok()); },
};

}  // namespace
}  // namespace spillway::bench

extern "C" __attribute__((visibility("default"))) const spillway_gate_bench* spillway_gate_bench_open(
    int predict) {
  spillway::bench::Build(predict != 0);
  return &spillway::bench::kInterface;
}
