// Sizes in bytes, for tests of every layer. They lie in the outermost namespace of ours, so that a test's own
// namespace sees them.

#ifndef SPILLWAY_TESTS_SIZES_H_
#define SPILLWAY_TESTS_SIZES_H_

#include <cstdint>

namespace spillway {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr uint64_t kGiB = uint64_t{1} << 30;

}  // namespace spillway

#endif  // SPILLWAY_TESTS_SIZES_H_
