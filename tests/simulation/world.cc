#include "tests/simulation/world.h"

#include <algorithm>

#include "allocator/memory/test_points.h"
#include "allocator/residency/transfer/copy_in.h"
#include "io/os/check.h"
#include "tests/policy/planner/full_scan.h"
#include "tests/simulation/os.h"
#include "tests/simulation/scheduler.h"

namespace spillway::simulation {
namespace {

using allocator::Block;
using allocator::BlockState;
using allocator::Gate;

// Each choice of victims against the full scan of all blocks of the index, by what they are now.
class FullScan : public allocator::SelectionWatch {
 public:
  void Before() override { scheduler().HoldSwitches(); }
  void After(const Index& index, policy::Bytes needed, absl::FunctionRef<Index::Facts(Index::Key)> facts,
             absl::FunctionRef<policy::Bytes(Index::Key)> bytes,
             const std::vector<Index::Key>& chosen) override {
    std::vector<policy::VictimCandidate> candidates;
    for (const Index::Key key : index.Keys()) {
      const Index::Facts now = facts(key);
      if (const policy::Bytes size = bytes(key); size > 0)
        candidates.push_back({key, size, now.idle_since, now.next_use});
    }
    std::sort(candidates.begin(), candidates.end(),
              [](const auto& a, const auto& b) { return a.key < b.key; });
    std::vector<Index::Key> expected;
    for (const uint32_t i : policy::SelectVictims(candidates, needed))
      expected.push_back(static_cast<Index::Key>(candidates[i].key));
    if (expected != chosen) scheduler().Fail("other victims are chosen than by the full scan");
    scheduler().AllowSwitches();
  }
};
FullScan full_scan;

// Where races are known to be, threads are preempted more often than elsewhere.
Random* random_of_points = nullptr;
int preempt_one_in = 0;
void AtDelayPoint(const char*) {
  if (preempt_one_in == 0 || !random_of_points->OneIn(static_cast<uint32_t>(preempt_one_in))) return;
  scheduler().Preempt(int64_t{500} << random_of_points->Below(12));
}

class AnyImage : public allocator::HashCode {
 public:
  absl::StatusOr<std::string> Image(int, int) override { return std::string("image"); }
};

}  // namespace

WorldSettings WorldSettings::Draw(Random* random) {
  WorldSettings settings;
  settings.target_chunks = random->OneIn(2) ? 8 + random->Below(8) : 8 + random->Below(24);
  settings.host_buffers = random->OneIn(6) ? 0 : 4 + random->Below(60);
  settings.disk_slots = random->OneIn(2) ? 0 : 8 + random->Below(80);
  settings.reserve_chunks = 1 + random->Below(3);
  settings.run_ahead_chunks = 2 + random->Below(2 * static_cast<uint32_t>(settings.target_chunks));
  settings.hash = !random->OneIn(3);
  settings.asymmetric_barrier = !random->OneIn(4);
  settings.slow_gpu_one_in = random->OneIn(2) ? 0 : 2 + static_cast<int>(random->Below(30));
  settings.slow_disk_one_in = random->OneIn(2) ? 0 : 2 + static_cast<int>(random->Below(10));
  settings.preempt_at_points_one_in = random->OneIn(2) ? 0 : 2 << random->Below(6);
  settings.kept_addresses = random->OneIn(2) ? 4096 : 1 + random->Below(8);
  settings.largest_handle = uint32_t{1} << random->Below(7);
  settings.wait_limit_nanos = random->OneIn(8) ? int64_t{100'000} << random->Below(10) : 0;
  settings.lendable_chunks = random->OneIn(2) ? random->Below(4) : 0;
  settings.shared = random->OneIn(4);
  if (settings.shared) settings.lendable_chunks = 0;
  settings.reach = settings.host_buffers > 0 && random->OneIn(3);
  settings.soft = settings.reach && settings.hash && random->OneIn(2);
  settings.verify = settings.hash && random->OneIn(3);
  return settings;
}

std::string WorldSettings::Describe() const {
  return "target " + std::to_string(target_chunks) + ", host " + std::to_string(host_buffers) + ", disk " +
         std::to_string(disk_slots) + ", lends " + std::to_string(lendable_chunks) + ", reserve " +
         std::to_string(reserve_chunks) + ", run-ahead " + std::to_string(run_ahead_chunks) +
         (hash ? ", hash" : ", no hash") + (asymmetric_barrier ? "" : ", no membarrier") + ", slow GPU " +
         std::to_string(slow_gpu_one_in) + ", slow disk " + std::to_string(slow_disk_one_in) +
         ", preempted at points " + std::to_string(preempt_at_points_one_in) + ", keeps " +
         std::to_string(kept_addresses) + " addresses, handles of at most " + std::to_string(largest_handle) +
         " chunks, waits to " + std::to_string(wait_limit_nanos) + " ns" + (shared ? ", shared" : "") +
         (reach ? ", reaches host memory" : "") + (soft ? ", soft" : "") +
         (verify ? ", compares what comes back" : "");
}

World::World(const WorldSettings& settings, Random* random)
    : settings_(settings),
      waits_(os::Clock::System(), nullptr, std::chrono::nanoseconds(settings.wait_limit_nanos)),
      pause_gate_(random),
      share_(random, (settings.target_chunks + 1) * chunk_bytes()) {
  settings_of_os().asymmetric_barrier = settings.asymmetric_barrier;
  Gpu::Options gpu;
  gpu.chunk_bytes = chunk_bytes();
  gpu.slow_one_in = settings.slow_gpu_one_in;
  gpu_ = std::make_unique<Gpu>(gpu, random);
  hash_code_ = std::make_unique<AnyImage>();
  auto addresses = allocator::AddressMap::Reserve(gpu_->driver(), 1, uint64_t{1} << 28, chunk_bytes());
  SPILLWAY_CHECK(addresses.ok());
  addresses_ = *std::move(addresses);
  allocator::HostPool::Options pool;
  pool.buffer_bytes = chunk_bytes();
  pool.storage_bytes = settings.host_buffers * chunk_bytes();
  pool.evict_staging_buffers = settings.disk_slots > 0 ? 3 : 0;
  pool.fault_staging_buffers = settings.disk_slots > 0 ? 3 : 0;
  pool.waits = &waits_;
  if (settings.reach) pool.reach = {.node = 0, .devices = {0}};
  pool.slab_bytes = 16 * chunk_bytes();
  auto host = allocator::HostPool::Create(gpu_->driver(), Gpu::context(), pool);
  SPILLWAY_CHECK(host.ok());
  host_ = *std::move(host);
  if (settings.disk_slots > 0) MakeDisk(random);
  allocator::ResidencyOptions options;
  options.budget_bytes = (settings.target_chunks + 1) * chunk_bytes();
  options.external_share_bytes = chunk_bytes();
  options.reserve_bytes = settings.lendable_chunks * chunk_bytes();
  options.free_reserve_bytes = settings.reserve_chunks * chunk_bytes();
  options.kept_addresses = settings.kept_addresses;
  options.largest_handle = settings.largest_handle;
  options.soft_evictions = settings.soft;
  options.verify_arrivals = settings.verify;
  options.run_ahead_bytes = settings.run_ahead_chunks * chunk_bytes();
  allocator::ResidencyParts parts;
  parts.driver = gpu_->driver();
  parts.context = Gpu::context();
  parts.addresses = addresses_.get();
  parts.host = host_.get();
  parts.disk = disk_.get();
  capacity_ = std::make_unique<allocator::SharedCapacity>(host_.get(), disk_.get());
  parts.capacity = capacity_.get();
  parts.waits = &waits_;
  parts.pause_gate = &pause_gate_;
  parts.share = settings.shared ? &share_ : nullptr;
  parts.hash_code = settings.hash ? hash_code_.get() : nullptr;
  residency_ = std::make_unique<allocator::DeviceResidency>(options, parts);
  share_.Bind(residency_.get());
  core()->table.mu.set_look([this] { CheckUnderLock(); });
  scheduler().set_on_switch([this] { CheckAnytime(); });
  allocator::selection_watch.store(&full_scan);
  random_of_points = random;
  preempt_one_in = settings.preempt_at_points_one_in;
  allocator::delay_function.store(&AtDelayPoint);
  SPILLWAY_CHECK(residency_->Start().ok());
  if (settings.verify) gpu_->set_flips([this](CUdeviceptr address) { return ArrivesWrong(address); });
}

// One copy in some is wrong, of those that are compared, and never twice for one block: then its only copy
// would count as lost.
bool World::ArrivesWrong(CUdeviceptr address) {
  constexpr uint64_t kOneIn = 16;
  if (++copies_in_ % kOneIn != 0) return false;
  scheduler().HoldSwitches();
  const allocator::Block& block = core()->table.at(addresses().Find(address));
  const allocator::FetchJob* const job = block.fetch.job;
  const bool wrong = job != nullptr && job->wrong_arrivals == 0 && !job->still &&
                     block.copies.content_known && block.memory.reached.empty() &&
                     residency_->hash()->Get() != nullptr;
  scheduler().AllowSwitches();
  return wrong;
}

void World::MakeDisk(Random* random) {
  const int directories = 1 + static_cast<int>(random->Below(2));
  Disk::Options disk;
  disk.most_bytes = (settings_.disk_slots + 1) / directories * io::kSlotBytes + io::kSlotBytes;
  disk.slow_one_in = settings_.slow_disk_one_in;
  disk.short_one_in = 64;
  drives_ = std::make_unique<Disk>(disk, random);
  io::SpillStoreOptions store;
  store.workers = 2;  // the same schedules on every machine
  for (int i = 0; i < directories; ++i) store.directories.push_back({.path = "/drive" + std::to_string(i)});
  store.growth_bytes = (1 + random->Below(8)) * io::kSlotBytes;
  store.request_bytes = io::kPageBytes;
  store.checksum = io::ChecksumMode::kOn;
  store.late_frees = std::chrono::nanoseconds::zero();
  store.waits = &waits_;
  auto made = io::SpillStore::Create(store);
  SPILLWAY_CHECK(made.ok());
  disk_ = *std::move(made);
}

bool World::IsReachable(CUdeviceptr address) {
  scheduler().HoldSwitches();
  const allocator::Block& block = core()->table.at(addresses().Find(address));
  const allocator::BlockState state = block.state;
  const bool on_gpu = state == allocator::BlockState::kResident || state == allocator::BlockState::kEvicting;
  const bool reachable = on_gpu || block.memory.soft;
  scheduler().AllowSwitches();
  return reachable;
}

World::~World() {
  residency_->Shutdown();
  host_->Shutdown();
  if (disk_ != nullptr) disk_->Shutdown();
  scheduler().set_on_switch(nullptr);
  core()->table.mu.set_look(nullptr);
}

std::string World::Describe() {
  scheduler().HoldSwitches();
  const allocator::TableLock lock{allocator::TableLock::AlreadyLocked()};  // nobody else runs
  const allocator::ChunkPool& chunks = residency_->charges()->chunks(lock);
  const allocator::Charges::Metrics metrics = residency_->charges()->metrics(lock);
  std::string text = "\n  chunks: target " + std::to_string(chunks.target()) + ", created " +
                     std::to_string(chunks.created()) + ", free " + std::to_string(chunks.free()) +
                     "; live " + std::to_string(metrics.live_bytes / chunk_bytes()) +
                     ", promised off the GPU " + std::to_string(metrics.promised_bytes / chunk_bytes()) +
                     " of " +
                     std::to_string((capacity_->host_bytes() + capacity_->disk_bytes()) / chunk_bytes());
  if (disk_ != nullptr) {
    const io::SpillStoreStats stats = disk_->stats();
    text += "; slots in use " + std::to_string(stats.slots_in_use);
    for (const io::DirectoryStats& directory : stats.directories)
      text += ", a file of " + std::to_string(directory.file_bytes / io::kSlotBytes);
  }
  text += "; host buffers free " + std::to_string(host_->Free(allocator::HostUse::kStorage)) +
          ", for evictions " + std::to_string(host_->Free(allocator::HostUse::kEvictStaging));
  for (Block* block : blocks_) {
    if (block->state == BlockState::kFree) continue;
    text +=
        "\n  block of " + std::to_string(block->chunks) + ": " + NameOf(block->state) + ", pins " +
        std::to_string(block->pins) + ", keeps a copy in " + std::to_string(block->copies.copy_homes.size()) +
        (block->eviction.job != nullptr ? ", leaves" : "") + (block->fetch.job != nullptr ? ", comes" : "") +
        (block->allocation.freed ? ", freed" : "") + (block->paused() ? ", paused" : "") +
        (block->pause.region.keep ? "" : ", not kept") + (block->pin_reasons != 0 ? ", stays" : "") +
        ", failed " + std::to_string(block->eviction.failures) + ", " +
        std::to_string(std::ranges::count_if(block->copies.homes, &allocator::ExtentHome::in_host)) +
        " in host memory, " + std::to_string(block->memory.reached.size()) + " reached";
  }
  scheduler().AllowSwitches();
  return text;
}

// What holds whenever nobody holds the table's lock.
void World::CheckUnderLock() {
  allocator::Core* const core = residency_->core();
  core->table.mu.AssertLocked();
  const allocator::TableLock lock{allocator::TableLock::AlreadyLocked()};
  const allocator::ChunkPool& chunks = residency_->charges()->chunks(lock);
  core->table.CheckInvariantsLocked(lock);
  uint64_t in_blocks = 0;
  blocks_.clear();
  core->table.ForEachLocked(lock, [&](Block* block) {
    in_blocks += ChunksOf(block->memory.handles);
    blocks_.push_back(block);
  });
  if (in_blocks + chunks.free() > chunks.created()) scheduler().Fail("more chunks than were created");
}

// What holds at every switch.
void World::CheckAnytime() {
  scheduler().HoldSwitches();
  for (Block* block : blocks_) {
    if (block->gate.state.load() != Gate::kOpen) continue;
    for (uint32_t i = 0; i < block->chunks; ++i) {
      if (!gpu_->IsMapped(block->address + i * chunk_bytes())) {
        scheduler().Fail("the gate of a block is open, and the block is not mapped");
      }
    }
  }
  scheduler().AllowSwitches();
}

}  // namespace spillway::simulation
