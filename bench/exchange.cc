#include "bench/exchange.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>

#include "bench/stand_in.h"
#include "io/os/clock.h"
#include "io/os/thread.h"
#include "policy/model/plan.h"

namespace spillway::bench {
namespace {

constexpr uint64_t kChunkBytes = 2 << 20;
constexpr uint64_t kShareBytes = 32 << 20;
constexpr int kWarmRounds = 3;
// A block of 512 MiB takes some 0.4 s at the largest time scale and the slowest rate.
constexpr int kStillScans = 10;
constexpr auto kScanInterval = std::chrono::milliseconds(100);

double SecondsSince(int64_t start) {
  return static_cast<double>(os::Clock::System()->NowNanos() - start) / 1e9;
}

}  // namespace

Exchange::Exchange(const fakes::HardwareStandIn& machine, const allocator::CudaDriver* driver,
                   CUcontext context, const Options& options)
    : machine_(machine), driver_(driver), options_(options), uses_(options.blocks) {
  machine_.Become({});
  const uint64_t all_bytes = options.block_bytes * options.blocks;
  addresses_ = *allocator::AddressMap::Reserve(driver, 1, 2 * all_bytes + (uint64_t{1} << 30), kChunkBytes);
  allocator::HostPool::Options host;
  host.buffer_bytes = kChunkBytes;
  host.storage_bytes = all_bytes;
  host.evict_staging_buffers = host.fault_staging_buffers = 0;
  host_ = *allocator::HostPool::Create(driver, context, host);
  if (!host_->GrowStorageTo(all_bytes).ok()) Die("host memory cannot be pinned");
  allocator::ResidencyOptions residency;
  residency.budget_bytes = options.fitting * options.block_bytes + kShareBytes;
  residency.external_share_bytes = kShareBytes;
  allocator::ResidencyParts parts;
  parts.driver = driver;
  parts.context = context;
  parts.addresses = addresses_.get();
  parts.host = host_.get();
  residency_ = *allocator::Residency::Create(residency, parts);
  for (size_t i = 0; i < options.blocks; ++i)
    blocks_.push_back(residency_->Allocate(options.block_bytes, {}).value());
  for (CUdeviceptr block : blocks_) {  // zeros, whatever was there
    allocator::AccessSet set;
    addresses_->Collect(block, &set);
    const uint64_t zero = 0;
    Must(residency_->RunPinned(set, {}, 2,
                               [&] { return driver_->cuMemcpyHtoDAsync_v2(block, &zero, 8, nullptr); }),
         "the first use of a block");
  }
  Must(driver_->cuStreamSynchronize(nullptr), "cuStreamSynchronize");
  SetPlan();
  Run(kWarmRounds);
}

Exchange::~Exchange() {
  machine_.Become({});
  Must(driver_->cuCtxSynchronize(), "cuCtxSynchronize");
  for (CUdeviceptr block : blocks_) {
    if (!residency_->Free(block).ok()) Die("a free failed");
  }
  if (!residency_->EmptyCache().ok()) Die("memory is not given back");
  residency_->Shutdown();
}

// Each block leaves after its use, and comes back for the next as early as there is memory.
void Exchange::SetPlan() {
  const auto length = static_cast<uint32_t>(options_.blocks);
  auto plan = std::make_shared<policy::MigrationPlan>();
  plan->start = residency_->Stats().launches;
  plan->iteration_launches = length;
  plan->budget_bytes = options_.fitting * options_.block_bytes;
  plan->expected_bytes.assign(length, static_cast<int64_t>(options_.block_bytes));
  for (uint32_t i = 0; i < length; ++i) {
    const auto block = static_cast<policy::TraceBlock>(addresses_->Find(blocks_[i]).raw());
    plan->launches.push_back({i, 1});
    plan->uses.push_back(block);
    policy::PlanOp drop;
    drop.kind = policy::PlanOpKind::kDrop;
    drop.launch = drop.needed = i;
    drop.block = block;
    plan->ops.push_back(drop);
    policy::PlanOp fetch;
    fetch.launch = (i + 1) % length;
    fetch.needed = i;
    fetch.block = block;
    plan->ops.push_back(fetch);
  }
  residency_->SetPlan(std::move(plan));
}

void Exchange::Use(size_t block) {
  allocator::AccessSet set;
  addresses_->Collect(blocks_[block], &set);
  Must(residency_->Run(set, {}, 1,
                       [&] {
                         void* parameters[] = {&blocks_[block], &uses_[block]};
                         return machine_.launch_kernel(machine_.count_kernel(), 1, 1, 1, 1, 1, 1, 0, nullptr,
                                                       parameters, nullptr);
                       }),
       "a launch");
  ++uses_[block];
}

Exchange::Moved Exchange::Run(int rounds) {
  const allocator::ResidencyStats before = residency_->Stats();
  const int64_t start = os::Clock::System()->NowNanos();
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < blocks_.size(); ++i) Use(i);
  }
  Must(driver_->cuStreamSynchronize(nullptr), "cuStreamSynchronize");
  const allocator::ResidencyStats after = residency_->Stats();
  return {SecondsSince(start), after.spilled_bytes - before.spilled_bytes,
          after.fetched_bytes - before.fetched_bytes};
}

void Exchange::Settle() const {
  uint64_t before = 0;
  for (int still = 0; still < kStillScans; ++still) {
    const allocator::ResidencyStats stats = residency_->Stats();
    const uint64_t moved = stats.spilled_bytes + stats.fetched_bytes;
    if (moved != before) still = 0;
    before = moved;
    os::SleepFor(kScanInterval);
  }
}

PlainCopies::PlainCopies(const fakes::HardwareStandIn& machine, const allocator::CudaDriver* driver,
                         uint64_t bytes)
    : machine_(machine), driver_(driver), bytes_(bytes) {
  for (int side = 0; side < 2; ++side) {
    host_[side] = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (host_[side] == MAP_FAILED) Die("no host memory");
    Must(driver->cuMemHostRegister_v2(host_[side], bytes, 0), "cuMemHostRegister");
    Must(machine.mem_alloc(&device_[side], bytes), "cuMemAlloc");
    Must(driver->cuStreamCreateWithPriority(&streams_[side], CU_STREAM_NON_BLOCKING, 0), "cuStreamCreate");
  }
  Seconds(bytes, bytes);  // pages are there
}

PlainCopies::~PlainCopies() {
  for (int side = 0; side < 2; ++side) {
    Must(driver_->cuStreamDestroy_v2(streams_[side]), "cuStreamDestroy");
    Must(machine_.mem_free(device_[side]), "cuMemFree");
    Must(driver_->cuMemHostUnregister(host_[side]), "cuMemHostUnregister");
    munmap(host_[side], bytes_);
  }
}

double PlainCopies::Seconds(uint64_t out_bytes, uint64_t in_bytes) const {
  const int64_t start = os::Clock::System()->NowNanos();
  for (uint64_t at = 0; at < std::max(out_bytes, in_bytes); at += bytes_) {
    if (at < out_bytes) {
      const uint64_t bytes = std::min(bytes_, out_bytes - at);
      Must(driver_->cuMemcpyDtoHAsync_v2(host_[0], device_[0], bytes, streams_[0]), "cuMemcpyDtoHAsync");
    }
    if (at < in_bytes) {
      const uint64_t bytes = std::min(bytes_, in_bytes - at);
      Must(driver_->cuMemcpyHtoDAsync_v2(device_[1], host_[1], bytes, streams_[1]), "cuMemcpyHtoDAsync");
    }
  }
  for (CUstream stream : streams_) Must(driver_->cuStreamSynchronize(stream), "cuStreamSynchronize");
  return SecondsSince(start);
}

}  // namespace spillway::bench
