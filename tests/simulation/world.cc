#include "tests/simulation/world.h"

#include <algorithm>

#include "io/os/check.h"
#include "tests/simulation/os.h"
#include "tests/simulation/scheduler.h"

namespace spillway::simulation {
namespace {

using allocator::Block;
using allocator::BlockState;
using allocator::Gate;

class AnyImage : public allocator::HashCode {
 public:
  absl::StatusOr<std::string> Image(int, int) override { return std::string("image"); }
};

}  // namespace

WorldSettings WorldSettings::Draw(Random* random) {
  WorldSettings settings;
  settings.chunk_bytes = random->OneIn(4) ? 8192 : 4096;
  settings.target_chunks = random->OneIn(2) ? 8 + random->Below(8) : 8 + random->Below(24);
  settings.host_pieces = random->OneIn(6) ? 0 : 4 + random->Below(60);
  settings.disk_slots = random->OneIn(2) ? 0 : 8 + random->Below(80);
  settings.reserve_chunks = 1 + random->Below(3);
  settings.run_ahead_chunks = 2 + random->Below(2 * static_cast<uint32_t>(settings.target_chunks));
  settings.hash = !random->OneIn(3);
  settings.asymmetric_barrier = !random->OneIn(4);
  settings.slow_gpu_one_in = random->OneIn(2) ? 0 : 2 + static_cast<int>(random->Below(30));
  settings.slow_disk_one_in = random->OneIn(2) ? 0 : 2 + static_cast<int>(random->Below(10));
  return settings;
}

std::string WorldSettings::Describe() const {
  return "chunk " + std::to_string(chunk_bytes) + ", target " + std::to_string(target_chunks) + ", host " +
         std::to_string(host_pieces) + ", disk " + std::to_string(disk_slots) + ", reserve " +
         std::to_string(reserve_chunks) + ", run-ahead " + std::to_string(run_ahead_chunks) +
         (hash ? ", hash" : ", no hash") + (asymmetric_barrier ? "" : ", no membarrier") + ", slow GPU " +
         std::to_string(slow_gpu_one_in) + ", slow disk " + std::to_string(slow_disk_one_in);
}

World::World(const WorldSettings& settings, Random* random) : settings_(settings) {
  settings_of_os().asymmetric_barrier = settings.asymmetric_barrier;
  Gpu::Options gpu;
  gpu.chunk_bytes = settings.chunk_bytes;
  gpu.slow_one_in = settings.slow_gpu_one_in;
  gpu_ = std::make_unique<Gpu>(gpu, random);
  hash_code_ = std::make_unique<AnyImage>();
  auto addresses = allocator::AddressMap::Reserve(gpu_->driver(), 1, uint64_t{1} << 28, settings.chunk_bytes);
  SPILLWAY_CHECK(addresses.ok());
  addresses_ = *std::move(addresses);
  allocator::HostPool::Options pool;
  pool.piece_bytes = settings.chunk_bytes;
  pool.storage_bytes = settings.host_pieces * settings.chunk_bytes;
  pool.evict_staging_pieces = settings.disk_slots > 0 ? 3 : 0;
  pool.fault_staging_pieces = settings.disk_slots > 0 ? 3 : 0;
  pool.slab_bytes = 16 * settings.chunk_bytes;
  auto host = allocator::HostPool::Create(gpu_->driver(), Gpu::context(), pool);
  SPILLWAY_CHECK(host.ok());
  host_ = *std::move(host);
  if (settings.disk_slots > 0) MakeDisk(random);
  allocator::ResidencyOptions options;
  options.budget_bytes = (settings.target_chunks + 1) * settings.chunk_bytes;
  options.others_share_bytes = settings.chunk_bytes;
  options.free_reserve_bytes = settings.reserve_chunks * settings.chunk_bytes;
  options.run_ahead_bytes = settings.run_ahead_chunks * settings.chunk_bytes;
  allocator::ResidencyParts parts;
  parts.driver = gpu_->driver();
  parts.context = Gpu::context();
  parts.addresses = addresses_.get();
  parts.host = host_.get();
  parts.disk = disk_.get();
  // A chunk here is far smaller than a slot, so the store's bytes of room are not the room for chunks.
  room_ = std::make_unique<allocator::SpillRoom>(host_.get(), settings.disk_slots * settings.chunk_bytes);
  parts.room = room_.get();
  parts.hash_code = settings.hash ? hash_code_.get() : nullptr;
  residency_ = std::make_unique<allocator::DeviceResidency>(options, parts);
  core()->table.mu.set_look([this] { LookUnderLock(); });
  scheduler().set_on_switch([this] { LookAnytime(); });
  SPILLWAY_CHECK(residency_->Start().ok());
}

void World::MakeDisk(Random* random) {
  const int directories = 1 + static_cast<int>(random->Below(2));
  Disk::Options disk;
  disk.most_bytes = (settings_.disk_slots + 1) / directories * io::kSlotBytes + io::kSlotBytes;
  disk.slow_one_in = settings_.slow_disk_one_in;
  disk.short_one_in = 64;
  drives_ = std::make_unique<Disk>(disk, random);
  io::SpillStoreOptions store;
  for (int i = 0; i < directories; ++i) store.directories.push_back({.path = "/drive" + std::to_string(i)});
  store.growth_bytes = (1 + random->Below(8)) * io::kSlotBytes;
  store.checksum = io::ChecksumMode::kOn;
  auto made = io::SpillStore::Create(store);
  SPILLWAY_CHECK(made.ok());
  disk_ = *std::move(made);
}

World::~World() {
  residency_->Shutdown();
  host_->Shutdown();
  if (disk_ != nullptr) disk_->Shutdown();
  scheduler().set_on_switch(nullptr);
  core()->table.mu.set_look(nullptr);
}

// What holds whenever nobody holds the table's lock.
void World::LookUnderLock() {
  allocator::Core* const core = residency_->core();
  core->table.mu.AssertHeld();
  core->table.CheckInvariantsLocked();
  uint64_t in_blocks = 0;
  blocks_.clear();
  core->table.ForEachLocked([&](Block* block) {
    in_blocks += block->handles.size();
    blocks_.push_back(block);
  });
  if (in_blocks + core->chunks.free() > core->chunks.held()) scheduler().Fail("more chunks than are held");
}

// What holds at every switch.
void World::LookAnytime() {
  scheduler().HoldSwitches();
  for (Block* block : blocks_) {
    if (block->gate.load() != Gate::kOpen) continue;
    for (uint32_t i = 0; i < block->chunks; ++i) {
      if (!gpu_->IsMapped(block->address + i * settings_.chunk_bytes)) {
        scheduler().Fail("the gate of a block is open, and the block is not mapped");
      }
    }
  }
  scheduler().AllowSwitches();
}

}  // namespace spillway::simulation
