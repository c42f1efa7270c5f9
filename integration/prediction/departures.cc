#include "integration/prediction/departures.h"

namespace spillway::integration {

void Departures::Compare(policy::LaunchIndex index, uint64_t signature) {
  // Sequentially consistent with FreeRetired: it sees this reader, or this reader sees what is in force now.
  readers_.fetch_add(1);
  const Expectation* const expected = expected_.load();
  if (expected != nullptr && !expected->Matches(index, signature)) DepartFrom(expected);
  readers_.fetch_sub(1);
}

void Departures::DepartFrom(const Expectation* expected) {
  if (!expected_.compare_exchange_strong(expected, nullptr)) return;  // another thread departed first
  count_.fetch_add(1, std::memory_order_relaxed);
  iteration_launches_.store(0, std::memory_order_relaxed);
  drop_(expected->hints);
}

void Departures::Expect(policy::LaunchIndex start, std::vector<uint64_t> signatures, Plan hints) {
  iteration_launches_.store(static_cast<uint32_t>(signatures.size()), std::memory_order_relaxed);
  auto expectation = std::make_unique<Expectation>();
  expectation->hints = std::move(hints);
  expectation->start = start;
  expectation->signatures = std::move(signatures);
  last_ = expectation.get();
  expected_.store(last_);
  kept_.push_back(std::move(expectation));
}

void Departures::Depart() {
  if (const Expectation* const expected = expected_.load()) DepartFrom(expected);
}

void Departures::FreeRetired() {
  const Expectation* const current = expected_.load();
  if (readers_.load() != 0) return;
  std::erase_if(kept_, [&](const auto& one) { return one.get() != current && one.get() != last_; });
}

}  // namespace spillway::integration
