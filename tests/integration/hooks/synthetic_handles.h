// Handles that no driver gave, for tests of what is kept by handle: a number each, so that a test can say which
// one it means.

#ifndef SPILLWAY_TESTS_INTEGRATION_HOOKS_SYNTHETIC_HANDLES_H_
#define SPILLWAY_TESTS_INTEGRATION_HOOKS_SYNTHETIC_HANDLES_H_

#include <cstdint>

namespace spillway::integration {

inline void* Handle(uintptr_t number) { return reinterpret_cast<void*>(0x1000 + number * 64); }

}  // namespace spillway::integration

#endif  // SPILLWAY_TESTS_INTEGRATION_HOOKS_SYNTHETIC_HANDLES_H_
