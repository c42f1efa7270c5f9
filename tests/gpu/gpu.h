// A GPU as the programs of tests/gpu and bench/gpu see it: the driver that dlopen("libcuda.so.1") finds, the primary
// context of device 0, and seven kernels written in PTX, so that no compiler is needed where they run. On simcuda the
// kernels' host twins are registered first; nothing else differs.

#ifndef SPILLWAY_TESTS_GPU_GPU_H_
#define SPILLWAY_TESTS_GPU_GPU_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "allocator/driver/cuda_driver.h"

namespace spillway::gpu {

using Clock = std::chrono::steady_clock;

inline constexpr uint64_t kMiB = 1 << 20;

inline double MicrosSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// What a call answers that is made again for 10 s while it answers NOT_READY.
template <typename Call>
CUresult UntilReady(const Call& call, uint64_t* not_ready = nullptr) {
  const Clock::time_point start = Clock::now();
  CUresult result = call();
  while (result == CUDA_ERROR_NOT_READY && MicrosSince(start) < 10e6) {
    if (not_ready != nullptr) ++*not_ready;
    result = call();
  }
  return result;
}

// The process's only one; made by the first Get(). Programs end with a message where there is no usable device.
class Gpu {
 public:
  static Gpu& Get();

  // Of the library that dlopen("libcuda.so.1") gave; null when it has no such symbol.
  void* Symbol(const char* name) const;
  const allocator::CudaDriver& driver() const { return *driver_; }
  CUcontext context() const { return context_; }
  bool is_simcuda() const { return simcuda_; }
  // Name of the device, driver version, memory.
  std::string Description() const;

  CUstream NewStream() const;
  void Synchronize() const;

  // Kernels over words of 32 bits; they return as soon as the launch is queued.
  // word[i] = seed * 2654435761 + i
  void Fill(CUstream stream, CUdeviceptr address, uint64_t bytes, uint32_t seed) const;
  // Adds the number of words that Fill with `seed` would not have written to the counter at `differences`.
  void Compare(CUstream stream, CUdeviceptr address, uint64_t bytes, uint32_t seed,
               CUdeviceptr differences) const;
  // to[i] = 5 * to[i] + from[i] + 7
  void Mix(CUstream stream, CUdeviceptr to, CUdeviceptr from, uint64_t bytes) const;
  // Adds the number of words that are not offset + slope * i to the counter at `differences`.
  void Check(CUstream stream, CUdeviceptr address, uint64_t bytes, uint32_t slope, uint32_t offset,
             CUdeviceptr differences) const;
  // Adds 1 to each word, as a float and by an atomic operation.
  void AddOnes(CUstream stream, CUdeviceptr address, uint64_t bytes) const;
  // Keeps the stream busy.
  void Spin(CUstream stream, uint64_t nanos) const;
  // Does nothing with its argument.
  void Nothing(CUstream stream, CUdeviceptr address) const;
  CUfunction nothing() const { return nothing_; }
  // The PTX that the kernels come from.
  static const char* code();
  CUfunction fill() const { return fill_; }

  // The process ends with the driver's words when `result` is an error.
  void Must(CUresult result, const char* what) const;

  decltype(&::cuLaunchKernel) launch_kernel = nullptr;
  decltype(&::cuMemAlloc_v2) mem_alloc = nullptr;
  decltype(&::cuMemFree_v2) mem_free = nullptr;

 private:
  Gpu();
  void Launch(CUfunction function, CUstream stream, std::vector<void*> parameters, uint32_t blocks) const;

  void* library_ = nullptr;
  bool simcuda_ = false;
  const allocator::CudaDriver* driver_ = nullptr;
  CUcontext context_ = nullptr;
  CUfunction fill_ = nullptr, compare_ = nullptr, mix_ = nullptr, check_ = nullptr, add_ones_ = nullptr;
  CUfunction spin_ = nullptr, nothing_ = nullptr;
};

// Physical memory mapped at an address of its own, in chunks.
class Mapping {
 public:
  explicit Mapping(uint64_t bytes, uint64_t chunk_bytes = uint64_t{2} << 20);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  CUdeviceptr address() const { return address_; }
  uint64_t bytes() const { return bytes_; }
  // One driver call for all chunks, as the product does it; the chunks stay.
  CUresult Unmap();
  // Maps the chunks again, at `address` or where they were. Waits and tries again on NOT_READY; counts that.
  void Map(CUdeviceptr address = 0);
  static uint64_t not_ready() { return not_ready_; }

 private:
  const uint64_t bytes_;
  const uint64_t chunk_bytes_;
  CUdeviceptr reserved_ = 0;
  CUdeviceptr address_ = 0;
  bool mapped_ = false;
  std::vector<CUmemGenericAllocationHandle> chunks_;
  static uint64_t not_ready_;
};

// Host memory that has its pages. The driver knows it from Register to Unregister, or to its end.
class HostMemory {
 public:
  explicit HostMemory(uint64_t bytes);
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  void Register();
  void Unregister();
  char* at(uint64_t offset) const { return static_cast<char*>(data_) + offset; }

 private:
  const uint64_t bytes_;
  void* data_ = nullptr;
  bool registered_ = false;
};

}  // namespace spillway::gpu

// A function of the driver that Spillway itself does not call; null where this driver lacks it.
#define GPU_FUNCTION(symbol) \
  reinterpret_cast<decltype(&::symbol)>(::spillway::gpu::Gpu::Get().Symbol(#symbol))

#endif  // SPILLWAY_TESTS_GPU_GPU_H_
