// What a hardware profile of simcuda needs beside driver_bench's blocks and launches: the driver's small calls, and the
// link's directions alone, together and in small pieces. JSON keys are those that write_profile.py reads.

#ifndef SPILLWAY_BENCH_GPU_CALL_COSTS_H_
#define SPILLWAY_BENCH_GPU_CALL_COSTS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

namespace spillway::gpu {

// Of at least one value.
double Median(std::vector<double> values);

// Microseconds of each call on an idle device, medians; those that grow with bytes for two sizes.
nlohmann::json MeasureCalls(int rounds);

// GB/s of copies of `bytes` in each direction, alone and beside the other; microseconds that a piece of 2 MiB takes more
// than its bytes.
nlohmann::json MeasureLink(int rounds, uint64_t bytes);

}  // namespace spillway::gpu

#endif  // SPILLWAY_BENCH_GPU_CALL_COSTS_H_
