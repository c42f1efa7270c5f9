#include "allocator/tier/host_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string>
#include <utility>

#include "allocator/tier/free_buffers.h"
#include "io/os/atomic.h"
#include "io/os/clock.h"
#include "io/os/errno.h"
#include "io/os/log.h"
#include "io/os/sync.h"
#include "io/os/thread.h"

namespace spillway::allocator {
namespace {

constexpr uint64_t kHugePage = 2 << 20;
constexpr uint64_t kGuard = 4096;
constexpr auto kBetweenLooks =
    std::chrono::milliseconds(100);  // a waiter's looks at the user's limit of waits
constexpr auto kEndWait = std::chrono::milliseconds(200);

// Maps anonymous memory, in huge pages where the kernel gives them. It is kept out of forked children: a
// child's copy-on-write would move pages that the device copies from. A page behind it that nobody may touch
// keeps slabs apart: each is pinned on its own, and no copy may reach over two of them.
std::byte* MapSlab(uint64_t bytes) {
  const uint64_t padded = bytes + kHugePage;
  void* const raw = mmap(nullptr, padded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  const uint64_t start = reinterpret_cast<uint64_t>(raw);
  const uint64_t aligned = (start + kHugePage - 1) / kHugePage * kHugePage;
  if (aligned > start) munmap(raw, aligned - start);
  const uint64_t end = aligned + bytes;
  mprotect(reinterpret_cast<void*>(end), kGuard, PROT_NONE);
  const uint64_t tail = start + padded - (end + kGuard);
  if (tail > 0) munmap(reinterpret_cast<void*>(end + kGuard), tail);
  auto* const slab = reinterpret_cast<std::byte*>(aligned);
  madvise(slab, bytes, MADV_HUGEPAGE);
  madvise(slab, bytes, MADV_DONTFORK);
  return slab;
}

std::string Mebibytes(uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

}  // namespace

struct HostPool::State {
  struct Kind {
    FreeBuffers free;
    size_t limit = 0;    // buffers that may exist
    size_t created = 0;  // buffers that are pinned
  };

  State(const CudaDriver* driver_in, CUcontext context_in, const Options& options_in)
      : driver(driver_in),
        context(context_in),
        options(options_in),
        waits(options_in.waits != nullptr ? options_in.waits : &own_waits),
        cap(options_in.storage_bytes / options_in.buffer_bytes * options_in.buffer_bytes) {}

  Kind& KindOf(HostUse use) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) { return kinds[static_cast<int>(use)]; }
  absl::StatusOr<std::byte*> PinSlab(uint64_t bytes) const;
  void AddSlabLocked(HostUse use, std::byte* slab, size_t buffers) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void AskLocked(const std::shared_ptr<State>& self, uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void RefuseLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  size_t NextSlabLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void PinLoop();

  const CudaDriver* const driver;
  const CUcontext context;
  const Options options;
  os::WaitList own_waits;
  os::WaitList* const waits;

  // Bytes of storage. Written under mu, read without it by SharedCapacity, which promises by them.
  os::Atomic<uint64_t> capacity{0};
  os::Atomic<uint64_t> cap;

  mutable os::Mutex mu{os::LockRank::kTier};
  os::CondVar asked;   // wanted or stopping changed
  os::CondVar pinned;  // capacity, cap, stopping or ended changed
  Kind kinds[3] ABSL_GUARDED_BY(mu) = {Kind{FreeBuffers(options.buffer_bytes)},
                                       Kind{FreeBuffers(options.buffer_bytes)},
                                       Kind{FreeBuffers(options.buffer_bytes)}};
  uint64_t wanted ABSL_GUARDED_BY(mu) = 0;   // bytes of storage: the most that was asked for so far
  absl::Status refusal ABSL_GUARDED_BY(mu);  // the error that lowered the cap
  bool stopping ABSL_GUARDED_BY(mu) = false;
  bool ended ABSL_GUARDED_BY(mu) = false;  // the thread will not use this object again
  os::Thread thread ABSL_GUARDED_BY(mu);   // started with the first need
};

absl::StatusOr<std::unique_ptr<HostPool>> HostPool::Create(const CudaDriver* driver, CUcontext context,
                                                           const Options& options) {
  auto state = std::make_shared<State>(driver, context, options);
  os::MutexLock lock(&state->mu);
  state->KindOf(HostUse::kStorage).limit = options.storage_bytes / options.buffer_bytes;
  state->KindOf(HostUse::kEvictStaging).limit = static_cast<size_t>(options.evict_staging_buffers);
  state->KindOf(HostUse::kFaultStaging).limit = static_cast<size_t>(options.fault_staging_buffers);
  for (HostUse use : {HostUse::kEvictStaging, HostUse::kFaultStaging}) {
    const size_t buffers = state->KindOf(use).limit;
    if (buffers == 0) continue;
    std::byte* slab = nullptr;  // the pool is not shared yet: the lock keeps nobody waiting
    SPILLWAY_ASSIGN_OR_RETURN(slab, state->PinSlab(buffers * options.buffer_bytes));
    state->AddSlabLocked(use, slab, buffers);
  }
  return std::unique_ptr<HostPool>(new HostPool(state));
}

HostPool::HostPool(std::shared_ptr<State> state) : state_(std::move(state)) {}

HostPool::~HostPool() { Shutdown(); }

// ---- Pinning.

absl::StatusOr<std::byte*> HostPool::State::PinSlab(uint64_t wanted_bytes) const {
  const uint64_t bytes = (wanted_bytes + 4095) / 4096 * 4096;
  std::byte* const slab = MapSlab(bytes);
  if (slab == nullptr)
    return os::StatusFromErrno(errno, "mapping " + std::to_string(bytes) + " bytes of host memory");
  ScopedContext scope(driver, context);
  const absl::Status status =
      driver->ToStatus(driver->cuMemHostRegister_v2(slab, bytes, CU_MEMHOSTREGISTER_PORTABLE),
                       "pinning " + std::to_string(bytes) + " bytes of host memory");
  if (status.ok()) return slab;
  munmap(slab, bytes + kGuard);
  return status;
}

void HostPool::State::AddSlabLocked(HostUse use, std::byte* slab, size_t buffers) {
  Kind& kind = KindOf(use);
  kind.free.Give(slab, buffers);
  kind.created += buffers;
  if (use == HostUse::kStorage) capacity.store(kind.created * options.buffer_bytes);
}

void HostPool::State::AskLocked(const std::shared_ptr<State>& self, uint64_t bytes) {
  if (bytes <= wanted || stopping) return;
  wanted = bytes;
  asked.NotifyAll();
  if (!thread.joinable() && capacity.load() < cap.load()) {
    absl::StatusOr<os::Thread> started = os::StartThread("spill-pin", [self] { self->PinLoop(); });
    if (started.ok()) {
      thread = *std::move(started);
    } else {
      RefuseLocked(started.status());
      pinned.NotifyAll();
    }
  }
}

// How many buffers to pin next: towards what was asked for, and one slab ahead of it. 0: none.
size_t HostPool::State::NextSlabLocked() {
  Kind& storage = KindOf(HostUse::kStorage);
  const uint64_t target = std::min(cap.load(), wanted == 0 ? 0 : wanted + options.slab_bytes);
  if (capacity.load() >= target) return 0;
  return std::min<size_t>(std::max<uint64_t>(1, options.slab_bytes / options.buffer_bytes),
                          storage.limit - storage.created);
}

void HostPool::State::RefuseLocked(const absl::Status& status) {
  Kind& storage = KindOf(HostUse::kStorage);
  os::Log(os::LogLevel::kWarn, "host memory stays at " +
                                   std::to_string(storage.created * options.buffer_bytes) +
                                   " bytes: " + std::string(status.message()));
  storage.limit = storage.created;
  cap.store(capacity.load());
  refusal = status;
}

void HostPool::State::PinLoop() {
  os::MutexLock lock(&mu);
  while (!stopping) {
    const size_t buffers = NextSlabLocked();
    if (buffers == 0) {
      asked.Wait(&mu);
      continue;
    }
    mu.Unlock();
    absl::StatusOr<std::byte*> slab = PinSlab(buffers * options.buffer_bytes);
    mu.Lock();
    if (slab.ok()) {
      AddSlabLocked(HostUse::kStorage, *slab, buffers);
    } else {
      RefuseLocked(slab.status());
    }
    pinned.NotifyAll();
  }
  ended = true;
  pinned.NotifyAll();
}

absl::Status HostPool::GrowStorageTo(uint64_t bytes) {
  State& state = *state_;
  if (state.capacity.load() >= bytes) return absl::OkStatus();
  const os::Wait wait(state.waits, os::WaitKind::kPinning, Mebibytes(bytes) + " of the host tier");
  os::MutexLock lock(&state.mu);
  while (state.capacity.load() < bytes) {
    if (state.stopping) return absl::CancelledError("the host tier was shut down");
    if (state.cap.load() < bytes) {
      return absl::ResourceExhaustedError(
          "the host tier has " + Mebibytes(state.cap.load()) +
          (state.refusal.ok() ? " and no more"
                              : " and gets no more: " + std::string(state.refusal.message())));
    }
    SPILLWAY_RETURN_IF_ERROR(wait.Check());
    state.AskLocked(state_, bytes);
    if (state.cap.load() < bytes) continue;  // refused already
    state.pinned.WaitFor(&state.mu, kBetweenLooks);
  }
  return absl::OkStatus();
}

void HostPool::Shutdown() {
  os::Thread thread;
  bool ended = true;
  {
    os::MutexLock lock(&state_->mu);
    state_->stopping = true;
    state_->asked.NotifyAll();
    state_->pinned.NotifyAll();
    std::swap(thread, state_->thread);
    if (!thread.joinable()) return;
    const auto deadline = os::SteadyClock::now() + kEndWait;
    while (!state_->ended && os::SteadyClock::now() < deadline) {
      state_->pinned.WaitFor(&state_->mu, deadline - os::SteadyClock::now());
    }
    ended = state_->ended;
  }
  if (ended) {
    thread.join();
  } else {
    thread.detach();  // stuck in the driver; it keeps the state alive
  }
}

// ---- Buffers.

size_t HostPool::Take(HostUse use, size_t count, std::vector<PinnedBuffer>* buffers) {
  os::MutexLock lock(&state_->mu);
  State::Kind& kind = state_->KindOf(use);
  std::vector<std::byte*> found;
  const size_t taken = kind.free.Take(count, &found);
  for (std::byte* const data : found) buffers->push_back({data});
  if (use == HostUse::kStorage && taken < count) {
    state_->AskLocked(state_, (kind.created + count - taken) * state_->options.buffer_bytes);
  }
  return taken;
}

void HostPool::Give(HostUse use, PinnedBuffer first, size_t count) {
  os::MutexLock lock(&state_->mu);
  state_->KindOf(use).free.Give(first.data, count);
}

uint64_t HostPool::buffer_bytes() const { return state_->options.buffer_bytes; }
uint64_t HostPool::storage_capacity_bytes() const { return state_->capacity.load(); }
uint64_t HostPool::storage_cap_bytes() const { return state_->cap.load(); }

bool HostPool::storage_growing() const {
  os::MutexLock lock(&state_->mu);
  const uint64_t capacity = state_->capacity.load();
  return !state_->stopping && capacity < state_->cap.load() && capacity < state_->wanted;
}

uint64_t HostPool::storage_in_use() const {
  os::MutexLock lock(&state_->mu);
  const State::Kind& kind = state_->KindOf(HostUse::kStorage);
  return (kind.created - kind.free.size()) * state_->options.buffer_bytes;
}

size_t HostPool::Limit(HostUse use) const {
  os::MutexLock lock(&state_->mu);
  return state_->KindOf(use).limit;
}

size_t HostPool::Free(HostUse use) const {
  os::MutexLock lock(&state_->mu);
  const State::Kind& kind = state_->KindOf(use);
  return kind.free.size() + (kind.limit - kind.created);
}

}  // namespace spillway::allocator
