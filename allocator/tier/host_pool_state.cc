#include "allocator/tier/host_pool.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <string>
#include <utility>

#include "allocator/tier/host_pool_state.h"
#include "allocator/tier/pinned_slab.h"
#include "io/os/check.h"
#include "io/os/clock.h"
#include "io/os/errno.h"
#include "io/os/log.h"

namespace spillway::allocator {
namespace {

constexpr auto kPinScanInterval =
    std::chrono::milliseconds(100);  // between a waiter's checks of the user's limit of waits
constexpr auto kEndWait = std::chrono::milliseconds(200);
constexpr auto kPeerScanInterval = std::chrono::milliseconds(500);
// Launches may wait for a registration, which has a fixed cost besides. A slab that takes less than this is
// pinned twice as large the next time, so that the fixed cost does not delay the copies. A slab of 32 MiB
// takes twice this time at 1 GB/s.
constexpr int64_t kShortPinNanos = 16'000'000;

std::string Mebibytes(uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

}  // namespace

absl::StatusOr<std::unique_ptr<HostPool>> HostPool::Create(const CudaDriver* driver, CUcontext context,
                                                           const Options& options) {
  auto state = std::make_shared<State>(driver, context, options);
  os::MutexLock lock(&state->mu);
  state->KindOf(HostUse::kStorage).limit = options.storage_bytes / options.buffer_bytes;
  state->KindOf(HostUse::kEvictStaging).limit = static_cast<size_t>(options.evict_staging_buffers);
  state->KindOf(HostUse::kFaultStaging).limit = static_cast<size_t>(options.fault_staging_buffers);
  std::vector<std::pair<std::byte*, uint64_t>> staging;
  for (HostUse use : {HostUse::kEvictStaging, HostUse::kFaultStaging}) {
    const size_t buffers = state->KindOf(use).limit;
    if (buffers == 0) continue;
    const uint64_t bytes = buffers * options.buffer_bytes;
    // The pool is not shared yet, so nobody waits for the lock.
    const absl::StatusOr<std::byte*> slab = PinSlab(driver, context, bytes);
    if (!slab.ok()) {
      for (const auto& [start, size] : staging) UnpinSlab(driver, context, start, size);
      return slab.status();
    }
    staging.emplace_back(*slab, bytes);
    state->AddSlabLocked(use, *slab, buffers);
  }
  // A process needs staging to work at all, so it is counted and taken even if the others have too much.
  if (options.share != nullptr) {
    options.share->Register(state->staging_bytes, UINT64_MAX);
    state->ScanPeersLocked();
  }
  return std::unique_ptr<HostPool>(new HostPool(state));
}

HostPool::HostPool(std::shared_ptr<State> state) : state_(std::move(state)) {}

HostPool::~HostPool() { Shutdown(); }

// ---- Pinning.

void HostPool::State::AddSlabLocked(HostUse use, std::byte* slab, size_t buffers) {
  Kind& kind = KindOf(use);
  kind.free.Give(slab, buffers);
  kind.created += buffers;
  if (use == HostUse::kStorage) capacity.fetch_add(buffers * options.buffer_bytes);
}

void HostPool::State::AskLocked(const std::shared_ptr<State>& self, uint64_t bytes) {
  if (bytes <= wanted || stopping) return;
  wanted = bytes;
  asked.NotifyAll();
  if (!thread.joinable() && (options.share != nullptr || capacity.load() < cap.load())) {
    absl::StatusOr<os::Thread> started = os::StartThread("spill-pin", [self] { self->PinLoop(); });
    if (started.ok()) {
      thread = *std::move(started);
    } else {
      RefuseLocked(started.status());
      pinned.NotifyAll();
    }
  }
}

// Number of buffers to pin next: towards the requested size, and one slab ahead of it. 0 for none.
size_t HostPool::State::NextSlabLocked() {
  Kind& storage = KindOf(HostUse::kStorage);
  const uint64_t target = std::min(cap.load(), wanted == 0 ? 0 : wanted + options.slab_bytes);
  if (capacity.load() >= target) return 0;
  const uint64_t most = std::min<uint64_t>((cap.load() - capacity.load()) / options.buffer_bytes,
                                           storage.limit - storage.created);
  const uint64_t large = slabs_at_once * options.slab_bytes;
  const uint64_t bytes = target - capacity.load() >= large ? large : options.slab_bytes;
  return std::min(std::max<uint64_t>(1, bytes / options.buffer_bytes), most);
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
    if (PinNextLocked()) continue;
    const uint64_t limit = KindOf(HostUse::kStorage).limit * options.buffer_bytes;
    if (options.share != nullptr && capacity.load() < std::min(wanted, limit)) {
      asked.WaitFor(&mu, kPeerScanInterval);  // one of the others may have ended
      ScanPeersLocked();
    } else {
      asked.Wait(&mu);
    }
  }
  ended = true;
  pinned.NotifyAll();
}

// Returns false when there is nothing to pin, or when others have it just now.
bool HostPool::State::PinNextLocked() {
  const size_t buffers = NextSlabLocked();
  if (buffers == 0) return false;
  const uint64_t bytes = buffers * options.buffer_bytes;
  io::NodeShare* const share = options.share;
  const bool large = bytes > options.slab_bytes;
  if (share != nullptr && !share->Register(share->taken() + bytes, options.shared_bytes)) {
    if (large) {
      slabs_at_once = 1;  // half of it may be available
      return true;
    }
    cap.store(capacity.load());  // until the next look, so that nobody waits for it
    return false;
  }
  mu.Unlock();
  const int64_t start = os::Clock::System()->NowNanos();
  absl::StatusOr<HandleSlab> slab = MakeSlab(buffers);
  const int64_t nanos = os::Clock::System()->NowNanos() - start;
  mu.Lock();
  if (slab.ok()) {
    RecordPinLocked(bytes, nanos);
    if (!slab->handles.empty()) handles.emplace(slab->start, std::move(slab->handles));
    AddSlabLocked(HostUse::kStorage, slab->start, buffers);
  } else {
    if (share != nullptr) share->Register(share->taken() - bytes, options.shared_bytes);
    if (large)
      slabs_at_once = 1;  // half of it may be available
    else
      RefuseLocked(slab.status());
  }
  pinned.NotifyAll();
  return true;
}

absl::StatusOr<HandleSlab> HostPool::State::MakeSlab(size_t buffers) const {
  if (!options.reach.devices.empty())
    return MakeHandleSlab(driver, context, options.reach, options.buffer_bytes, buffers);
  SPILLWAY_ASSIGN_OR_RETURN(std::byte* const start, PinSlab(driver, context, buffers * options.buffer_bytes));
  return HandleSlab{start, 0, {}};
}

PinnedBuffer HostPool::State::BufferLocked(std::byte* data) const {
  const auto next = handles.upper_bound(data);
  if (next == handles.begin()) return {data};
  const auto& [start, slab] = *std::prev(next);
  const auto index = static_cast<size_t>(data - start) / options.buffer_bytes;
  return {data, index < slab.size() ? slab[index] : 0};
}

void HostPool::State::RecordPinLocked(uint64_t bytes, int64_t nanos) {
  if (bytes == options.slab_bytes && nanos < kShortPinNanos) slabs_at_once = 2;
  if (bytes > options.slab_bytes && nanos > 2 * kShortPinNanos) slabs_at_once = 1;
}

// ---- Waiting for it.

absl::Status HostPool::GrowStorageTo(uint64_t bytes) {
  State& state = *state_;
  if (state.capacity.load() >= bytes) return absl::OkStatus();
  const os::Wait wait(state.waits, os::WaitKind::kPinning, Mebibytes(bytes) + " of the host tier");
  os::MutexLock lock(&state.mu);
  state.AskPeersLocked(state_, bytes);
  while (state.capacity.load() < bytes) {
    if (state.stopping) return absl::CancelledError("the host tier was shut down");
    if (state.cap.load() < bytes) return state.NoMoreLocked();
    SPILLWAY_RETURN_IF_ERROR(wait.Check());
    state.AskLocked(state_, bytes);
    state.pinned.WaitFor(&state.mu, kPinScanInterval);
  }
  return absl::OkStatus();
}

void HostPool::AskFor(uint64_t bytes) {
  os::MutexLock lock(&state_->mu);
  state_->AskPeersLocked(state_, bytes);
}

// Looks at what is available now, because the pinning thread may not have begun yet, or may have looked a
// while ago.
void HostPool::State::AskPeersLocked(const std::shared_ptr<State>& self, uint64_t bytes) {
  if (options.share == nullptr || stopping) return;
  ScanPeersLocked();
  AskLocked(self, bytes);
}

// A limit by a refusal of the system stays.
void HostPool::State::ScanPeersLocked() {
  options.share->Scan();
  const uint64_t most = options.share->MostToTake(options.shared_bytes);
  const uint64_t storage =
      (most - std::min(most, staging_bytes)) / options.buffer_bytes * options.buffer_bytes;
  const uint64_t limit = KindOf(HostUse::kStorage).limit * options.buffer_bytes;
  cap.store(std::max(capacity.load(), std::min(limit, storage)));
  pinned.NotifyAll();
}

absl::Status HostPool::State::NoMoreLocked() const {
  std::string text = "the host tier has " + Mebibytes(cap.load());
  if (!refusal.ok()) {
    text += " and gets no more: " + std::string(refusal.message());
  } else if (options.share != nullptr && options.share->peers() > 0) {
    text += " and no more: " + std::to_string(options.share->peers()) +
            " other processes of this node have a part in the " + Mebibytes(options.shared_bytes) +
            ", and pin " + Mebibytes(options.share->taken_by_peers());
  } else {
    text += " and no more";
  }
  return absl::ResourceExhaustedError(text);
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
  for (std::byte* const data : found) buffers->push_back(state_->BufferLocked(data));
  if (use == HostUse::kStorage && taken < count) {
    state_->AskLocked(state_, (kind.created + count - taken) * state_->options.buffer_bytes);
  }
  return taken;
}

void HostPool::Give(HostUse use, PinnedBuffer first, size_t count) {
  os::MutexLock lock(&state_->mu);
  FreeBuffers& free = state_->KindOf(use).free;
  if (state_->read.empty()) return free.Give(first.data, count);
  for (size_t i = 0; i < count; ++i) {
    std::byte* const buffer = first.data + i * state_->options.buffer_bytes;
    const auto read = state_->read.find(buffer);
    if (read == state_->read.end())
      free.Give(buffer, 1);
    else
      read->second = true;
  }
}

void HostPool::BeginRead(PinnedBuffer buffer) {
  os::MutexLock lock(&state_->mu);
  SPILLWAY_CHECK(state_->read.emplace(buffer.data, false).second);
}

void HostPool::EndRead(PinnedBuffer buffer) {
  os::MutexLock lock(&state_->mu);
  const auto read = state_->read.find(buffer.data);
  if (read->second) state_->KindOf(HostUse::kStorage).free.Give(buffer.data, 1);
  state_->read.erase(read);
}

void HostPool::Abandon(HostUse use) {
  os::MutexLock lock(&state_->mu);
  State::Kind& kind = state_->KindOf(use);
  --kind.created;
  --kind.limit;
}

uint64_t HostPool::buffer_bytes() const { return state_->options.buffer_bytes; }
bool HostPool::reachable() const { return !state_->options.reach.devices.empty(); }
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
