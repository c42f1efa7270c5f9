// What the tests of io share: a directory of their own on a real disk, patterns, and waiting for callbacks. A
// file system in memory may refuse direct transfers.

#ifndef SPILLWAY_TESTS_IO_STORE_HELPERS_H_
#define SPILLWAY_TESTS_IO_STORE_HELPERS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "io/os/sync.h"
#include "io/store/spill_store.h"

namespace spillway::io {

// A fresh directory under the build's working directory (not /tmp, which may be memory), removed at the end.
class TestDirectory {
 public:
  TestDirectory();
  ~TestDirectory();
  const std::string& path() const { return path_; }
  bool Empty() const;

 private:
  std::string path_;
};

// Deterministic bytes that differ between seeds and positions.
void FillPattern(char* data, size_t bytes, uint64_t seed);

// Grows by little at a time, with a reserve that a nearly full build machine still has.
SpillStoreOptions SmallOptions(const std::string& path);

// Refuses O_DIRECT as far as probes can see: of each directory every transfer of the first two engines, which
// are the direct ones.
void RefuseDirect(SpillStoreOptions* options);

// Creates or fails the test.
std::unique_ptr<SpillStore> MakeStore(SpillStoreOptions options);

// Reserves or fails the test.
std::vector<SlotId> Reserve(SpillStore* store, size_t n);

// An owner of a store's capacity that has promised so much of it.
struct PromisedCapacity final : CapacityOwner {
  explicit PromisedCapacity(uint64_t bytes) : promised_bytes(bytes) {}
  void SetCapacity(uint64_t) override {}
  bool LowerCapacity(uint64_t bytes) override { return promised_bytes <= bytes; }
  uint64_t PromisedBytes() const override { return promised_bytes; }
  std::atomic<uint64_t> promised_bytes;
};

// Collects the statuses of a number of callbacks; each must come exactly once.
class Waiter {
 public:
  SpillStore::Done Expect();
  // In the order of Expect. Aborts after a minute: a callback that never comes is the bug that these tests
  // look for.
  std::vector<absl::Status> WaitAll();

 private:
  struct State;
  std::shared_ptr<State> state_ = MakeState();
  static std::shared_ptr<State> MakeState();
};

absl::Status WriteSync(SpillStore* store, SlotId slot, const void* data, uint32_t bytes);
absl::Status ReadSync(SpillStore* store, SlotId slot, void* data, uint32_t bytes,
                      Priority priority = Priority::kDemand);

}  // namespace spillway::io

#endif  // SPILLWAY_TESTS_IO_STORE_HELPERS_H_
