// Waiting for what other threads do. A test orders threads by stops, latches and executors; where it can only look
// whether something has happened, it does so by WaitUntil. Nothing else in the tests sleeps, unless
// tests/checks/sleep_exceptions.txt says why. Any thread; nothing fails.

#ifndef SPILLWAY_TESTS_FAKES_WAIT_UNTIL_H_
#define SPILLWAY_TESTS_FAKES_WAIT_UNTIL_H_

#include <chrono>
#include <thread>

namespace spillway::tests {

// How long a test looks before it fails. A machine may be busy and a shared disk may keep a write for ten seconds
// (seen), so it is long; only a test that fails waits for all of it.
inline constexpr std::chrono::seconds kPatience{120};

// Looks every 100 us whether `condition` holds. Returns false when it does not hold within `patience`.
template <typename Condition>
[[nodiscard]] bool WaitUntil(Condition condition, std::chrono::nanoseconds patience = kPatience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= end) return condition();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

}  // namespace spillway::tests

#endif  // SPILLWAY_TESTS_FAKES_WAIT_UNTIL_H_
