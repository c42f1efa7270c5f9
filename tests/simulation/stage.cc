#include "tests/simulation/stage.h"

#include <utility>

#include "io/os/check.h"
#include "tests/simulation/scheduler.h"

namespace spillway::simulation {

Stage::Stage(const WorldSettings& settings, Random* random) : random_(random), world_(settings, random) {}

size_t Stage::Make(uint64_t chunks, CUstream stream, bool unused, allocator::BlockRegion region) {
  const uint64_t bytes = chunks * world_.chunk_bytes();
  const auto address = world_.residency().Allocate(bytes, {stream, false}, region);
  SPILLWAY_CHECK(address.ok());
  blocks_.push_back({*address, bytes, 0, stream, true});
  const size_t block = blocks_.size() - 1;
  if (!unused) SPILLWAY_CHECK(Launch(stream, {block}) || world_.gpu().error() != CUDA_SUCCESS);
  return block;
}

bool Stage::Launch(CUstream stream, const std::vector<size_t>& blocks, bool write, bool may_refuse) {
  std::vector<Use> uses;
  std::vector<uint64_t> forgets;
  allocator::AccessSet set;
  for (size_t i : blocks) {
    const Made& block = blocks_[i];
    forgets.push_back(block.forgets);
    uses.push_back({block.address, block.bytes, block.version, write ? ++last_version_ : block.version});
    world_.addresses().Collect(block.address, &set);
  }
  const uint64_t chunk_bytes = world_.chunk_bytes();
  const CUresult result = world_.residency().Run(set, {stream, false}, 1, [&]() -> CUresult {
    std::vector<Use> now = uses;
    for (size_t i = 0; i < blocks.size(); ++i) {
      const uint64_t forgets_now = blocks_[blocks[i]].forgets;
      if (std::exchange(forgets[i], forgets_now) != forgets_now) now[i].before = 0;
    }
    return world_.gpu().Enqueue(stream, [now, chunk_bytes](Gpu* gpu) {
      for (const Use& use : now) UseBlock(gpu, use, chunk_bytes);
    });
  });
  if (result != CUDA_SUCCESS) {
    if (world_.gpu().error() == CUDA_SUCCESS && !may_refuse) scheduler().Fail("a launch was refused");
    return false;
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    Made& block = blocks_[blocks[i]];
    block.version = block.forgets == forgets[i] ? uses[i].after : 0;
  }
  return true;
}

void Stage::LaunchFor(CUstream stream, size_t number, int64_t nanos) {
  const Made& block = blocks_[number];
  const Use use = {block.address, block.bytes, block.version, block.version};
  allocator::AccessSet set;
  world_.addresses().Collect(block.address, &set);
  const CUresult result = world_.residency().Run(set, {stream, false}, 1, [&]() -> CUresult {
    return world_.gpu().Enqueue(stream, [use, nanos](Gpu* gpu) {
      scheduler().SleepUntil(scheduler().now() + nanos);
      UseBlock(gpu, use, World::chunk_bytes());
    });
  });
  SPILLWAY_CHECK(result == CUDA_SUCCESS);
}

void Stage::ReadUnseen(CUstream stream, size_t number, int64_t nanos) {
  const Made& block = blocks_[number];
  const Use use = {block.address, block.bytes, block.version, block.version};
  const uint64_t chunk_bytes = world_.chunk_bytes();
  world_.gpu().Enqueue(stream, [use, nanos, chunk_bytes](Gpu* gpu) {
    scheduler().SleepUntil(scheduler().now() + nanos);
    UseBlock(gpu, use, chunk_bytes);
  });
}

void Stage::Free(size_t block) {
  blocks_[block].live = false;
  SPILLWAY_CHECK(world_.residency().Free(blocks_[block].address).ok());
}

allocator::Block& Stage::Record(size_t block) {
  return world_.core()->table.at(world_.addresses().Find(blocks_[block].address));
}

void Stage::Evict(size_t number, policy::PlanTier tier) {
  allocator::Core* const core = world_.core();
  {
    const allocator::TableLock lock(core->table);
    allocator::Block& block = Record(number);
    const bool may = (block.state == allocator::BlockState::kResident ||
                      (block.state == allocator::BlockState::kCached && block.allocation.listed)) &&
                     block.pins == 0 && block.pin_reasons == 0 && block.eviction.job == nullptr &&
                     !block.memory.mapping && !block.allocation.freed;
    if (may && !core->closed.load()) world_.residency().evictor()->StartLocked(lock, {&block}, tier);
  }
  world_.residency().thread()->Wake();
}

void Stage::CopyOut(size_t number) {
  allocator::Core* const core = world_.core();
  {
    const allocator::TableLock lock(core->table);
    allocator::Block& block = Record(number);
    const bool may = block.state == allocator::BlockState::kResident && block.pins == 0 &&
                     block.pin_reasons == 0 && block.eviction.job == nullptr && !block.memory.mapping;
    if (may) world_.residency().evictor()->CopyOutLocked(lock, &block, policy::PlanTier::kHost);
  }
  world_.residency().thread()->Wake();
}

void Stage::SomeTime() { scheduler().SleepUntil(scheduler().now() + int64_t{100} * random_->Below(512)); }

void Stage::Settle() { scheduler().SleepUntil(scheduler().now() + 2'000'000'000); }

void Stage::CompareAll() {
  if (world_.core()->closed.load() || world_.gpu().error() != CUDA_SUCCESS) return;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (!blocks_[i].live) continue;
    world_.gpu().Synchronize(blocks_[i].stream);
    Launch(blocks_[i].stream, {i}, /*write=*/false);
    world_.gpu().Synchronize(blocks_[i].stream);
  }
}

}  // namespace spillway::simulation
