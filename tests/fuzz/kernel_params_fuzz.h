// The body of the fuzz target for the parameter scan. It reads a layout and parameter bytes from the input,
// and aborts unless the scan finds exactly the blocks that a naive scan finds. Called by libFuzzer, and by
// kernel_params_test with seeded random inputs. One thread.

#ifndef SPILLWAY_TESTS_FUZZ_KERNEL_PARAMS_FUZZ_H_
#define SPILLWAY_TESTS_FUZZ_KERNEL_PARAMS_FUZZ_H_

#include <cstddef>
#include <cstdint>

namespace spillway::integration {

// Returns how many blocks the input named.
size_t FuzzKernelParams(const uint8_t* data, size_t size);

}  // namespace spillway::integration

#endif  // SPILLWAY_TESTS_FUZZ_KERNEL_PARAMS_FUZZ_H_
