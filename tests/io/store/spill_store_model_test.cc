// SpillStore against a simple map: seeded random operations from several threads over engines that fail, are
// late and reorder. After each step the store must agree with the map; at the end nothing may be missing.

#include <gtest/gtest.h>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "io/engine/aligned_buffer.h"
#include "io/store/spill_store.h"
#include "tests/fakes/faulty_engine.h"
#include "tests/fakes/memory_engine.h"
#include "tests/io/store_helpers.h"

namespace spillway::io {
namespace {

constexpr uint64_t kDirectories = 3;
constexpr uint64_t kSlotsPerDirectory = 24;

struct ModelCase {
  uint64_t seed;
  bool memory;  // modeled disks instead of real files
  double fault_rate;
};

// One thread's slots and what they must contain. Threads share the store and nothing else.
class Actor {
 public:
  Actor(SpillStore* store, uint64_t seed)
      : store_(store), random_(seed), data_(kSlotBytes), back_(kSlotBytes) {}

  void Step() {
    switch (random_() % 10) {
      case 0:
      case 1:
      case 2: Reserve(); break;
      case 3:
      case 4:
      case 5: Write(); break;
      case 6: Release(); break;
      default: Read();
    }
  }

  // Everything that was written reads back.
  void CheckAll() {
    for (auto& [slot, contents] : held_) Check(slot, contents);
  }

  size_t held() const { return held_.size(); }
  uint64_t write_errors() const { return write_errors_; }
  uint64_t read_errors() const { return read_errors_; }
  uint64_t full() const { return full_; }

 private:
  struct Contents {
    uint64_t pattern = 0;
    uint32_t bytes = 0;  // 0: the slot has no contents
  };
  using Held = std::vector<std::pair<SlotId, Contents>>;

  void Reserve() {
    const size_t count = 1 + random_() % 4;
    absl::StatusOr<std::vector<SlotId>> slots = store_->ReserveSlots(count);
    if (!slots.ok()) {
      ASSERT_TRUE(absl::IsResourceExhausted(slots.status())) << slots.status();
      ++full_;
      return;
    }
    ASSERT_EQ(slots->size(), count);
    for (const SlotId slot : *slots) {
      for (const auto& [other, contents] : held_) ASSERT_FALSE(other == slot);
      held_.emplace_back(slot, Contents{});
    }
  }

  void Write() {
    if (held_.empty()) return;
    auto& [slot, contents] = held_[random_() % held_.size()];
    const auto bytes = static_cast<uint32_t>((1 + random_() % (kSlotBytes / kPageBytes)) * kPageBytes);
    const uint64_t pattern = random_();
    FillPattern(data_.data(), bytes, pattern);
    const absl::Status status = WriteSync(store_, slot, data_.data(), bytes);
    contents = status.ok() ? Contents{pattern, bytes} : Contents{};
    write_errors_ += status.ok() ? 0 : 1;
  }

  void Release() {
    if (held_.empty()) return;
    std::swap(held_[random_() % held_.size()], held_.back());
    store_->ReleaseSlot(held_.back().first);
    held_.pop_back();
  }

  void Read() {
    if (held_.empty()) return;
    auto& [slot, contents] = held_[random_() % held_.size()];
    Check(slot, contents);
  }

  void Check(SlotId slot, const Contents& contents) {
    if (contents.bytes == 0) {
      ASSERT_TRUE(absl::IsFailedPrecondition(ReadSync(store_, slot, back_.data(), kPageBytes)));
      return;
    }
    std::memset(back_.data(), 0, contents.bytes);
    const Priority priority = random_() % 2 == 0 ? Priority::kDemand : Priority::kPrefetch;
    // An error loses nothing: the bytes come with a later try.
    absl::Status status = ReadSync(store_, slot, back_.data(), contents.bytes, priority);
    for (int tries = 0; !status.ok() && tries < 50; ++tries) {
      ASSERT_FALSE(absl::IsDataLoss(status)) << status;
      ++read_errors_;
      status = ReadSync(store_, slot, back_.data(), contents.bytes, priority);
    }
    ASSERT_TRUE(status.ok()) << status;
    FillPattern(data_.data(), contents.bytes, contents.pattern);
    ASSERT_EQ(std::memcmp(data_.data(), back_.data(), contents.bytes), 0);
  }

  SpillStore* const store_;
  std::mt19937_64 random_;
  AlignedBuffer data_;
  AlignedBuffer back_;
  Held held_;
  uint64_t write_errors_ = 0;
  uint64_t read_errors_ = 0;
  uint64_t full_ = 0;
};

class SpillStoreModelTest : public ::testing::TestWithParam<ModelCase> {};

TEST_P(SpillStoreModelTest, AgreesWithAMap) {
  const ModelCase& tested = GetParam();
  TestDirectory directories[kDirectories];
  SpillStoreOptions options = SmallOptions(directories[0].path());
  options.directories.clear();
  for (const TestDirectory& directory : directories) {
    options.directories.push_back(SpillDirectory{directory.path(), kSlotsPerDirectory * kSlotBytes});
  }
  options.growth_bytes = 8 * kSlotBytes;
  options.request_bytes = 256u << 10;
  options.wrap_engine = [&tested](std::unique_ptr<IoEngine> inner, size_t directory) {
    FaultPlan plan;
    plan.random_rate = tested.fault_rate;
    plan.seed = tested.seed * 31 + directory;
    plan.reorder = true;
    if (tested.memory) {
      MemoryEngineOptions memory;
      memory.latency = std::chrono::microseconds(20);
      memory.bytes_per_second = 2e9;
      inner = MakeMemoryEngine(memory);
    }
    return MakeFaultyEngine(std::move(inner), plan);
  };
  auto store = MakeStore(std::move(options));
  std::vector<std::unique_ptr<Actor>> actors;
  for (uint64_t i = 0; i < 3; ++i)
    actors.push_back(std::make_unique<Actor>(store.get(), tested.seed * 101 + i));
  std::vector<std::thread> threads;
  for (const auto& actor : actors) {
    threads.emplace_back([&actor] {
      for (int step = 0; step < 300 && !::testing::Test::HasFatalFailure(); ++step) actor->Step();
      actor->CheckAll();
    });
  }
  for (std::thread& thread : threads) thread.join();
  size_t held = 0;
  uint64_t errors = 0;
  uint64_t full = 0;
  for (const auto& actor : actors) {
    held += actor->held();
    errors += actor->write_errors() + actor->read_errors();
    full += actor->full();
  }
  EXPECT_GT(full, 0u);  // the caps were reached, and everything went on
  const SpillStoreStats stats = store->stats();
  EXPECT_EQ(stats.slots_in_use, held);
  EXPECT_EQ(stats.errors, errors);
  EXPECT_EQ(stats.checksum_mismatches, 0u);
  EXPECT_LE(stats.file_bytes, kDirectories * kSlotsPerDirectory * kSlotBytes);
  if (tested.fault_rate > 0) {
    EXPECT_GT(stats.retries, 50u);
  }
}

std::vector<ModelCase> Cases() {
  std::vector<ModelCase> cases;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    cases.push_back({seed, true, seed % 2 == 0 ? 0.3 : 0.1});
    cases.push_back({seed + 100, false, seed % 2 == 0 ? 0.2 : 0.0});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Seeds, SpillStoreModelTest, ::testing::ValuesIn(Cases()), [](const auto& tested) {
  return std::string(tested.param.memory ? "Memory" : "Disk") + std::to_string(tested.param.seed);
});

}  // namespace
}  // namespace spillway::io
