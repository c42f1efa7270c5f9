// Link rates: the speed of one GPU's copies to and from pinned host memory, each direction alone and both at
// once. It pins and maps as the product does, and copies by the driver's asynchronous copies, until the time
// is over. `spillway doctor` calls it, with the GPU's context current; it starts one thread and ends it. A
// failure is the problem in the answer. Everything is given back.

#ifndef SPILLWAY_INTEGRATION_CLI_DOCTOR_LINK_RATES_H_
#define SPILLWAY_INTEGRATION_CLI_DOCTOR_LINK_RATES_H_

#include <chrono>
#include <cstdint>

#include "allocator/driver/cuda_driver.h"
#include "integration/cli/doctor/facts.h"

namespace spillway::integration {

struct LinkOptions {
  uint64_t free_bytes = 0;           // of the GPU's memory; a quarter is used at most
  uint64_t host_bytes = 0;           // available to this process; an eighth is used at most; 0: not known
  std::chrono::nanoseconds time{0};  // of each of the three parts
};
MeasuredLink MeasureLink(const allocator::CudaDriver& driver, CUcontext context, int device,
                         const LinkOptions& options);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_DOCTOR_LINK_RATES_H_
