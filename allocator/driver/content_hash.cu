// The device's content hash: void spillway_content_hash(const void* data, u64 vectors, u64* partials), one partial sum (low,
// high) a thread block. Compiled to content_hash.ptx.inc when it or content_hash.def changed (tests/allocator/
// content_hash_test.cc, SPILLWAY_WRITE_PTX); neither the build nor the product compiles it.
#define SPILLWAY_HASH_FUNCTION static __device__ __forceinline__
#define SPILLWAY_HASH_CODE(...) __VA_ARGS__
#include "content_hash.def"

// Neighbouring threads read neighbouring vectors; four in flight a thread hide the latency of memory.
extern "C" __global__ void __launch_bounds__(256)
spillway_content_hash(const ulonglong2* data, unsigned long long vectors, ulonglong2* partials) {
  unsigned long long low = 0, high = 0;
  const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
  unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
  for (; i + 3 * step < vectors; i += 4 * step) {
    const ulonglong2 v0 = data[i], v1 = data[i + step], v2 = data[i + 2 * step], v3 = data[i + 3 * step];
    SpillwayMix(v0.x, v0.y, i, &low, &high);
    SpillwayMix(v1.x, v1.y, i + step, &low, &high);
    SpillwayMix(v2.x, v2.y, i + 2 * step, &low, &high);
    SpillwayMix(v3.x, v3.y, i + 3 * step, &low, &high);
  }
  for (; i < vectors; i += step) SpillwayMix(data[i].x, data[i].y, i, &low, &high);
  for (int distance = 16; distance > 0; distance /= 2) {
    low += __shfl_down_sync(0xffffffffu, low, distance);
    high += __shfl_down_sync(0xffffffffu, high, distance);
  }
  __shared__ unsigned long long lows[8], highs[8];
  if (threadIdx.x % 32 == 0) {
    lows[threadIdx.x / 32] = low;
    highs[threadIdx.x / 32] = high;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < blockDim.x / 32; ++warp) {
      low += lows[warp];
      high += highs[warp];
    }
    partials[blockIdx.x] = make_ulonglong2(low, high);
  }
}
