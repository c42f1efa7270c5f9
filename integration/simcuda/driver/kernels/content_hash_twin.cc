// The host's twin of Spillway's content hash: bound to the name that an image compiled for a GPU carries. One
// call does what all thread blocks of the launch would; each writes its partial sum.
#include "integration/simcuda/driver/kernels/content_hash_twin.h"

#include <cstring>

#include "allocator/driver/content_hash.h"
#include "integration/simcuda/driver/copies/copy.h"
#include "integration/simcuda/driver/core/clock.h"
#include "integration/simcuda/driver/core/settings.h"
#include "integration/simcuda/driver/machine/hardware_time.h"
#include "integration/simcuda/driver/simcuda.h"

namespace simcuda {
namespace {

using spillway::allocator::ContentHash;
namespace content_hash = spillway::allocator::content_hash;

// Hashes the samples that large copies move in place of all bytes: the other bytes are not defined.
void AddSamples(uint64_t data, uint64_t bytes, ContentHash* sum) {
  for (uint64_t at = 0; at + kSampleBytes <= bytes; at += kSampleEvery) {
    const uint64_t first = at / content_hash::kVectorBytes;
    content_hash::Add(reinterpret_cast<const void*>(data), first,
                      first + kSampleBytes / content_hash::kVectorBytes, 1, sum);
  }
}

// (const void* data, u64 vectors, u64* partials). The first block's sum is the whole, in the order of memory;
// the sums of the others are 0, which adds up to the same.
void Run(const simcuda_launch* launch, void** parameters) {
  uint64_t words[3];
  for (int i = 0; i < 3; ++i) std::memcpy(&words[i], parameters[i], sizeof(words[i]));
  ContentHash sum;
  const uint64_t bytes = words[1] * content_hash::kVectorBytes;
  const HardwareProfile* const profile = ActiveProfile();
  if (profile != nullptr && GetSettings().copy_sample.load() != 0 && bytes > kSampleEvery) {
    const int64_t begin = NowNs();
    AddSamples(words[0], bytes, &sum);
    // A copy on the device touches each byte twice.
    SleepUntil(begin + static_cast<int64_t>(static_cast<double>(bytes) / (2 * profile->device_bytes_per_ns)));
  } else {
    content_hash::Add(reinterpret_cast<const void*>(words[0]), 0, words[1], 1, &sum);
  }
  auto* const partials = reinterpret_cast<uint64_t*>(words[2]);
  std::memset(partials, 0, launch->grid[0] * sizeof(ContentHash));
  partials[0] = sum.low;
  partials[1] = sum.high;
}

}  // namespace

void RegisterContentHash() {
  constexpr simcuda_parameter kThreeWords[] = {{0, 8}, {8, 8}, {16, 8}};
  const simcuda_kernel kernel{content_hash::kKernelName, &Run, nullptr, kThreeWords, 3};
  simcuda_register_kernel(&kernel, nullptr);
}

}  // namespace simcuda
