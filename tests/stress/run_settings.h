// RunSettings: what one seed of the stress is made of: directories, the way to the disk, faults, drives that
// fall ill. Constant data.

#ifndef SPILLWAY_TESTS_STRESS_RUN_SETTINGS_H_
#define SPILLWAY_TESTS_STRESS_RUN_SETTINGS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace spillway::stress {

// The methods of transfer (docs/io.md).
enum class Way : uint8_t { kUring, kThreads, kBuffered };

struct RunSettings {
  // Of seeds that are not clean. A hundredth of the product's, or about, so that a minute has hundreds of ill
  // drives. A drive of a busy machine may be that slow when it is well: then writes are given up without need,
  // which must lose nothing either.
  static constexpr std::chrono::milliseconds kRequestTimeout{400};
  static constexpr std::chrono::milliseconds kRetryTime{60};
  static constexpr int kErrorsUntilClosed = 4;
  static constexpr std::chrono::milliseconds kErrorWindow{500};
  static constexpr std::chrono::milliseconds kFirstProbe{20};
  static constexpr std::chrono::milliseconds kLongestProbePause{300};
  static constexpr std::chrono::milliseconds kMovesAfter{0};

  uint64_t seed = 1;
  int operations = 0;  // of all actors together
  int actors = 1;
  int directories = 1;
  int slots_per_directory = 16;
  size_t slots_per_actor = 16;  // the most that it takes; together they may want more than there are
  Way way = Way::kUring;
  bool checksum = true;
  bool encrypt = false;
  uint32_t request_bytes = 512u << 10;
  int requests_in_flight = 16;
  double random_rate = 0;     // of requests that fail, are short or late
  double duplicate_rate = 0;  // of results that come twice
  double damage_rate = 0;     // of requests that are damaged without a word
  bool ill = false;           // drives fall ill

  static RunSettings Draw(uint64_t seed, int operations);
  // True: no request may fail.
  bool clean() const { return !ill && random_rate == 0 && damage_rate == 0; }
  std::string Describe() const;
};

}  // namespace spillway::stress

#endif  // SPILLWAY_TESTS_STRESS_RUN_SETTINGS_H_
