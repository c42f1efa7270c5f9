// The stand-in driver beside the benchmark programs, for those that run the memory core on it: no GPU is
// needed, and none is measured. Also how a bench ends when something fails: one line with the program's name
// on standard error, and status 1.

#ifndef SPILLWAY_BENCH_STAND_IN_H_
#define SPILLWAY_BENCH_STAND_IN_H_

#include <string>

#include "allocator/driver/cuda_driver.h"

namespace spillway::bench {

// Says what is wrong and ends the program.
[[noreturn]] void Die(const std::string& text);
void Must(CUresult result, const char* what);

// Loaded and initialized, with that much device memory ("1GiB"); lives for ever. Settings of the stand-in (SIMCUDA_...) are
// made before.
const allocator::CudaDriver* OpenStandIn(const char* memory);

}  // namespace spillway::bench

#endif  // SPILLWAY_BENCH_STAND_IN_H_
