#include "allocator/residency/state/reach.h"

#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>

#include "allocator/memory/test_points.h"
#include "io/os/bytes_text.h"
#include "io/os/check.h"
#include "io/os/log.h"

namespace spillway::allocator {
namespace {

// Whether the extent's bytes lie in host memory, where they can be reached.
bool InPlace(const Block& block, uint32_t extent) {
  return block.state == BlockState::kSpilled && block.copies.homes[extent].in_host();
}

}  // namespace

std::vector<Reach::Part> Reach::ChooseLocked(const TableLock&, std::vector<Block*> lacking, uint64_t extents,
                                             KernelPasses passes) {
  const auto rank = [passes](const Block& block) {
    const bool empty = block.state == BlockState::kEmpty;
    if (passes == KernelPasses::kMany) return empty ? 0 : 1;
    if (passes == KernelPasses::kAtomic) return empty ? 1 : 0;
    // In this order: no copy at all, nothing to bring in, a read from the disk.
    if (empty) return 1;
    return std::ranges::all_of(block.copies.homes, &ExtentHome::in_host) ? 0 : 2;
  };
  std::ranges::sort(lacking, std::less<>(), [&](const Block* block) {
    return std::tuple(rank(*block), UINT32_MAX - block->chunks, block->id.raw());
  });
  std::vector<Part> parts;
  for (Block* const block : lacking) {
    if (extents == 0) break;
    const auto part = static_cast<uint32_t>(std::min<uint64_t>(block->chunks, extents));
    parts.push_back({block, part});
    extents -= part;
  }
  return parts;
}

bool Reach::TakeLocked(const TableLock& lock, const std::vector<Part>& parts,
                       std::vector<PinnedBuffer>* buffers, uint64_t* lacking) {
  lock.Covers(core_->table);
  uint64_t needed = 0;
  for (const Part& part : parts) {
    for (uint32_t extent = part.block->chunks - part.extents; extent < part.block->chunks; ++extent)
      needed += InPlace(*part.block, extent) ? 0 : 1;
  }
  HostPool* const host = core_->parts.host;
  size_t taken = host->Take(HostUse::kStorage, needed, buffers);
  if (taken < needed && clean_->host_buffers(lock) > 0) {
    clean_->ReclaimHost(lock, needed - taken);
    taken += host->Take(HostUse::kStorage, needed - taken, buffers);
  }
  *lacking = needed - taken;
  if (*lacking > 0) GiveLocked(lock, buffers);
  return *lacking == 0;
}

bool Reach::AssignLocked(const TableLock& lock, const Part& part, std::vector<PinnedBuffer>* buffers) {
  Block* const block = part.block;
  SPILLWAY_CHECK(block->memory.reached.empty());
  std::vector<PinnedBuffer> reached;
  size_t used = 0;
  for (uint32_t extent = block->chunks - part.extents; extent < block->chunks; ++extent) {
    const bool in_place = InPlace(*block, extent);
    if (!in_place && used == buffers->size()) return false;
    reached.push_back(in_place ? block->copies.homes[extent].buffer : (*buffers)[buffers->size() - ++used]);
  }
  buffers->resize(buffers->size() - used);
  SetLocked(lock, block, std::move(reached));
  return true;
}

void Reach::SetLocked(const TableLock& lock, Block* block, std::vector<PinnedBuffer> reached) {
  lock.Covers(core_->table);
  core_->table.reached_extents += reached.size();
  core_->table.reached_extents -= block->memory.reached.size();
  block->memory.reached = std::move(reached);
}

void Reach::GiveLocked(const TableLock& lock, std::vector<PinnedBuffer>* buffers) {
  lock.Covers(core_->table);
  for (const PinnedBuffer& buffer : *buffers) core_->parts.host->Give(HostUse::kStorage, buffer);
  buffers->clear();
}

void Reach::TakeBackLocked(const TableLock& lock, Block* block) {
  lock.Covers(core_->table);
  std::vector<PinnedBuffer> unused;
  for (size_t i = 0; i < block->memory.reached.size(); ++i) {
    const size_t extent = block->device_chunks() + i;
    const bool home = extent < block->copies.homes.size() && block->copies.homes[extent].in_host();
    if (!home || SPILLWAY_MUTANT(kReachedIsForgotten)) unused.push_back(block->memory.reached[i]);
  }
  GiveLocked(lock, &unused);
  SetLocked(lock, block, {});
}

void Reach::SettleLocked(const TableLock& lock, Block* block) {
  lock.Covers(core_->table);
  if (SPILLWAY_MUTANT(kReachedStaysHome)) return;
  for (size_t extent = block->device_chunks(); extent < block->copies.homes.size(); ++extent) {
    if (block->copies.homes[extent].in_host()) block->copies.homes[extent] = ExtentHome();
  }
}

void Reach::DropLocked(const TableLock& lock, Block* block) {
  std::vector<PinnedBuffer> reached = block->memory.reached;
  SetLocked(lock, block, {});
  GiveLocked(lock, &reached);
}

void Reach::LeaveLocked(const TableLock& lock, Block* block, std::vector<ExtentHome>* homes) {
  lock.Covers(core_->table);
  for (const PinnedBuffer& buffer : block->memory.reached) homes->push_back(ExtentHome::InHost(buffer));
  if (SPILLWAY_MUTANT(kReachedGivenAtEnd)) {
    std::vector<PinnedBuffer> buffers = block->memory.reached;
    GiveLocked(lock, &buffers);
  }
  SetLocked(lock, block, {});
}

void Reach::RecordLaunch(const std::vector<Block*>& pinned, uint64_t tag,
                         absl::FunctionRef<std::string()> advice) {
  uint64_t extents = 0;
  for (const Block* block : pinned) extents += block->memory.reached.size();
  if (extents == 0) return;
  const uint64_t bytes = extents * core_->chunk_bytes;
  core_->counters.reached_bytes += bytes;
  if (core_->parts.motion != nullptr) core_->parts.motion->OnReach(tag, bytes);
  if (core_->counters.reached_launches++ > 0) return;
  const std::string words = advice();
  os::ReportLine("the blocks of one launch do not fit the GPU together: " + os::BytesText(bytes) +
                 " of them stay in host memory, and are reached over the link. A larger budget ends that" +
                 (words.empty() ? "" : ". " + words));
}

}  // namespace spillway::allocator
