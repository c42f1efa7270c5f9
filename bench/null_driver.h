// A driver that does nothing and says yes, for measuring what Spillway itself costs: each function of
// driver_symbols.def returns at once. It owns no memory; addresses it hands out may not be touched.

#ifndef SPILLWAY_BENCH_NULL_DRIVER_H_
#define SPILLWAY_BENCH_NULL_DRIVER_H_

#include <cstddef>
#include <vector>

namespace spillway::bench {

// A kernel of this driver: a CUfunction is the address of one. It must outlive every launch of it.
struct NullKernel {
  std::vector<size_t> parameter_bytes;
};

// The function of that name, or null where driver_symbols.def does not have it.
void* NullDriverFunction(const char* symbol);

}  // namespace spillway::bench

#endif  // SPILLWAY_BENCH_NULL_DRIVER_H_
