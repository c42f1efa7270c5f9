#include "tests/io/store_helpers.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "io/os/check.h"
#include "tests/fakes/faulty_engine.h"

// ThreadSanitizer asks for this. The distribution's abseil is not instrumented, so it does not see the
// counter by which threads share the text of an error.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() { return "race:absl::*::Status::UnrefNonInlined\n"; }

namespace spillway::io {

struct Waiter::State {
  os::Mutex mu{os::LockRank::kRuntime};
  os::CondVar changed;
  std::vector<absl::Status> statuses ABSL_GUARDED_BY(mu);
  std::vector<bool> came ABSL_GUARDED_BY(mu);
  size_t missing ABSL_GUARDED_BY(mu) = 0;
};

TestDirectory::TestDirectory() {
  std::string name = std::filesystem::current_path() / "io-test-XXXXXX";
  SPILLWAY_CHECK(mkdtemp(name.data()) != nullptr);
  path_ = name;
}

TestDirectory::~TestDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

bool TestDirectory::Empty() const { return std::filesystem::is_empty(path_); }

void FillPattern(char* data, size_t bytes, uint64_t seed) {
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (size_t i = 0; i + sizeof(state) <= bytes; i += sizeof(state)) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    std::memcpy(data + i, &state, sizeof(state));
  }
}

SpillStoreOptions SmallOptions(const std::string& path) {
  SpillStoreOptions options;
  options.directories.push_back(SpillDirectory{path, 0});
  options.growth_bytes = 32u << 20;
  options.disk_reserve_bytes = 1u << 20;
  options.late_frees = std::chrono::nanoseconds::zero();
  return options;
}

void RefuseDirect(SpillStoreOptions* options) {
  options->wrap_probed_engine = [probed = std::make_shared<int>(0)](std::unique_ptr<IoEngine> engine) {
    if (++*probed % 3 == 0) return engine;
    FaultPlan plan;
    plan.faults = {Fault{.kind = FaultKind::kErrno, .op = IoOp::kWrite, .error = EINVAL}};
    return MakeFaultyEngine(std::move(engine), plan);
  };
}

std::unique_ptr<SpillStore> MakeStore(SpillStoreOptions options) {
  absl::StatusOr<std::unique_ptr<SpillStore>> store = SpillStore::Create(std::move(options));
  if (!store.ok()) {
    ADD_FAILURE() << store.status();
    std::abort();
  }
  return *std::move(store);
}

std::vector<SlotId> Reserve(SpillStore* store, size_t n) {
  absl::StatusOr<std::vector<SlotId>> slots = store->ReserveSlots(n);
  if (!slots.ok()) {
    ADD_FAILURE() << slots.status();
    std::abort();
  }
  return *std::move(slots);
}

std::shared_ptr<Waiter::State> Waiter::MakeState() { return std::make_shared<State>(); }

SpillStore::Done Waiter::Expect() {
  os::MutexLock lock(&state_->mu);
  const size_t place = state_->statuses.size();
  state_->statuses.emplace_back();
  state_->came.push_back(false);
  ++state_->missing;
  return [state = state_, place](absl::Status status) {
    os::MutexLock inner(&state->mu);
    SPILLWAY_CHECK(!state->came[place]);  // exactly once
    state->came[place] = true;
    state->statuses[place] = std::move(status);
    --state->missing;
    state->changed.NotifyAll();
  };
}

std::vector<absl::Status> Waiter::WaitAll() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  os::MutexLock lock(&state_->mu);
  while (state_->missing > 0) {
    SPILLWAY_CHECK(std::chrono::steady_clock::now() < deadline);
    state_->changed.WaitFor(&state_->mu, std::chrono::seconds(1));
  }
  // Words of their own: absl counts references to shared ones out of ThreadSanitizer's sight.
  std::vector<absl::Status> statuses;
  for (const absl::Status& status : state_->statuses) statuses.emplace_back(status.code(), status.message());
  return statuses;
}

absl::Status WriteSync(SpillStore* store, SlotId slot, const void* data, uint32_t bytes) {
  Waiter waiter;
  store->Write(slot, data, bytes, waiter.Expect());
  return waiter.WaitAll()[0];
}

absl::Status ReadSync(SpillStore* store, SlotId slot, void* data, uint32_t bytes, Priority priority) {
  Waiter waiter;
  store->Read(slot, data, bytes, priority, waiter.Expect());
  return waiter.WaitAll()[0];
}

}  // namespace spillway::io
