// The parameter forms that launches come in, and argument sets of each: bytes that hold addresses of blocks among other
// words. The forms are those of PyTorch's kernels: elementwise, many scalars, one struct by value, foreach.

#ifndef SPILLWAY_BENCH_LAUNCH_FORMS_H_
#define SPILLWAY_BENCH_LAUNCH_FORMS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/null_driver.h"

namespace spillway::bench {

struct LaunchForm {
  std::string name;
  NullKernel kernel;
  size_t pointers = 0;  // words that hold an address of a block
};

const std::vector<LaunchForm>& LaunchForms();

// One launch's arguments: what cuLaunchKernel gets as kernelParams, and the bytes behind it.
struct ArgumentSet {
  std::vector<uint64_t> words;
  std::vector<void*> params;
};

// `count` sets of `form`. Addresses are of different blocks, somewhere inside them; all other words are numbers,
// sizes and host addresses. Equal for equal arguments.
std::vector<ArgumentSet> MakeArguments(const LaunchForm& form, size_t count,
                                       const std::vector<uint64_t>& blocks, uint64_t block_bytes);

}  // namespace spillway::bench

#endif  // SPILLWAY_BENCH_LAUNCH_FORMS_H_
