#include "allocator/tier/host_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "io/os/check.h"
#include "io/os/errno.h"
#include "io/os/log.h"

namespace spillway::allocator {
namespace {

constexpr uint64_t kHugePage = 2 << 20;

// Anonymous memory in huge pages where the kernel gives them, kept out of forked children: a child's copy-on-write
// would move pages that the device copies from.
std::byte* MapSlab(uint64_t bytes) {
  const uint64_t padded = bytes + kHugePage;
  void* const raw = mmap(nullptr, padded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  const uint64_t start = reinterpret_cast<uint64_t>(raw);
  const uint64_t aligned = (start + kHugePage - 1) / kHugePage * kHugePage;
  if (aligned > start) munmap(raw, aligned - start);
  const uint64_t tail = start + padded - (aligned + bytes);
  if (tail > 0) munmap(reinterpret_cast<void*>(aligned + bytes), tail);
  auto* const slab = reinterpret_cast<std::byte*>(aligned);
  madvise(slab, bytes, MADV_HUGEPAGE);
  madvise(slab, bytes, MADV_DONTFORK);
  return slab;
}

}  // namespace

absl::StatusOr<std::unique_ptr<HostPool>> HostPool::Create(const CudaDriver* driver, CUcontext context,
                                                           const Options& options) {
  std::unique_ptr<HostPool> pool(new HostPool(driver, context, options));
  os::MutexLock lock(&pool->mu_);
  for (HostUse use : {HostUse::kEvictStaging, HostUse::kFaultStaging}) {
    Kind& kind = pool->kinds_[static_cast<int>(use)];
    if (kind.limit > 0) SPILLWAY_RETURN_IF_ERROR(pool->GrowLocked(&kind, kind.limit));
  }
  return pool;
}

HostPool::HostPool(const CudaDriver* driver, CUcontext context, const Options& options)
    : driver_(driver), context_(context), options_(options) {
  kinds_[static_cast<int>(HostUse::kStorage)].limit = options.storage_bytes / options.piece_bytes;
  kinds_[static_cast<int>(HostUse::kEvictStaging)].limit = options.evict_staging_pieces;
  kinds_[static_cast<int>(HostUse::kFaultStaging)].limit = options.fault_staging_pieces;
}

HostPool::~HostPool() = default;

absl::Status HostPool::GrowLocked(Kind* kind, size_t pieces) {
  const uint64_t bytes = (pieces * options_.piece_bytes + 4095) / 4096 * 4096;
  std::byte* const slab = MapSlab(bytes);
  if (slab == nullptr)
    return os::StatusFromErrno(errno, "mapping " + std::to_string(bytes) + " bytes of host memory");
  ScopedContext scope(driver_, context_);
  const absl::Status status =
      driver_->ToStatus(driver_->cuMemHostRegister_v2(slab, bytes, CU_MEMHOSTREGISTER_PORTABLE),
                        "pinning " + std::to_string(bytes) + " bytes of host memory");
  if (!status.ok()) {
    munmap(slab, bytes);
    return status;
  }
  for (size_t i = 0; i < pieces; ++i) kind->free.push_back({slab + i * options_.piece_bytes});
  kind->created += pieces;
  return absl::OkStatus();
}

size_t HostPool::Take(HostUse use, size_t count, std::vector<HostPiece>* pieces) {
  os::MutexLock lock(&mu_);
  Kind& kind = kinds_[static_cast<int>(use)];
  size_t taken = 0;
  while (taken < count) {
    if (kind.free.empty()) {
      const size_t slab = std::max<uint64_t>(1, options_.slab_bytes / options_.piece_bytes);
      const size_t grow = std::min(slab, kind.limit - kind.created);
      if (grow == 0) break;
      if (absl::Status status = GrowLocked(&kind, grow); !status.ok()) {
        os::Log(os::LogLevel::kWarn, "host memory stays at " +
                                         std::to_string(kind.created * options_.piece_bytes) +
                                         " bytes: " + std::string(status.message()));
        kind.limit = kind.created;
        break;
      }
    }
    pieces->push_back(kind.free.back());
    kind.free.pop_back();
    ++taken;
  }
  return taken;
}

void HostPool::Give(HostUse use, HostPiece piece) {
  os::MutexLock lock(&mu_);
  kinds_[static_cast<int>(use)].free.push_back(piece);
}

uint64_t HostPool::storage_capacity() const {
  os::MutexLock lock(&mu_);
  return kinds_[static_cast<int>(HostUse::kStorage)].limit * options_.piece_bytes;
}

uint64_t HostPool::storage_in_use() const {
  os::MutexLock lock(&mu_);
  const Kind& kind = kinds_[static_cast<int>(HostUse::kStorage)];
  return (kind.created - kind.free.size()) * options_.piece_bytes;
}

size_t HostPool::Limit(HostUse use) const {
  os::MutexLock lock(&mu_);
  return kinds_[static_cast<int>(use)].limit;
}

size_t HostPool::Free(HostUse use) const {
  os::MutexLock lock(&mu_);
  const Kind& kind = kinds_[static_cast<int>(use)];
  return kind.free.size() + (kind.limit - kind.created);
}

}  // namespace spillway::allocator
