// What the hardware bench runs: blocks of one size that go round, each used in turn, of which only some fit the device.
// Each that is used drives another out, so bytes go out and in together, by a plan as the predictor makes it where the
// job repeats; and the same bytes by plain copies of pinned memory, as the limit. Programs end with words on a failure.

#ifndef SPILLWAY_BENCH_EXCHANGE_H_
#define SPILLWAY_BENCH_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "allocator/memory/address_map.h"
#include "allocator/residency/residency.h"
#include "allocator/tier/host_pool.h"
#include "tests/fakes/hardware_stand_in.h"

namespace spillway::bench {

class Exchange {
 public:
  struct Options {
    uint64_t block_bytes = 0;
    size_t blocks = 0;   // that go round
    size_t fitting = 0;  // of them on the device
  };
  // Everything has been round several times and host memory is pinned, without costs, when it returns.
  Exchange(const fakes::HardwareStandIn& machine, const allocator::CudaDriver* driver, CUcontext context,
           const Options& options);
  ~Exchange();

  // What Run has taken and moved, by the residency's own count.
  struct Moved {
    double seconds = 0;
    uint64_t out_bytes = 0, in_bytes = 0;
  };
  // Uses every block once, `rounds` times, and waits until the GPU has done the last.
  Moved Run(int rounds);
  // Waits until nothing moves any more: the plan fetches on for the round that comes next.
  void Settle() const;

 private:
  // Launches the kernel that counts up in the block.
  void Use(size_t block);
  void SetPlan();

  const fakes::HardwareStandIn& machine_;
  const allocator::CudaDriver* const driver_;
  const Options options_;
  std::unique_ptr<allocator::AddressMap> addresses_;
  std::unique_ptr<allocator::HostPool> host_;
  std::unique_ptr<allocator::Residency> residency_;
  std::vector<CUdeviceptr> blocks_;
  std::vector<uint64_t> uses_;  // of each block
};

// Plain copies of pinned memory in pieces of one size, on a stream for each direction. Always to and from the
// same buffers: what is measured is the link.
class PlainCopies {
 public:
  PlainCopies(const fakes::HardwareStandIn& machine, const allocator::CudaDriver* driver, uint64_t bytes);
  ~PlainCopies();

  // Seconds for so many bytes in each direction at once.
  double Seconds(uint64_t out_bytes, uint64_t in_bytes) const;

 private:
  const fakes::HardwareStandIn& machine_;
  const allocator::CudaDriver* const driver_;
  const uint64_t bytes_;
  void* host_[2] = {};
  CUdeviceptr device_[2] = {};
  CUstream streams_[2] = {};
};

}  // namespace spillway::bench

#endif  // SPILLWAY_BENCH_EXCHANGE_H_
