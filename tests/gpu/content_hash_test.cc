// The content hash as the driver compiles its PTX for the device that is there: the host's value for every size and
// content, on memory mapped in chunks. A drop without a transfer rests on it.

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "allocator/driver/content_hash.h"
#include "allocator/driver/device_hash.h"
#include "tests/gpu/gpu.h"

namespace spillway::gpu {
namespace {

using allocator::ContentHash;
using allocator::DeviceHash;

ContentHash HashOnDevice(DeviceHash* hash, CUdeviceptr address, uint64_t bytes) {
  auto request = hash->Enqueue(hash->stream(), address, bytes);
  EXPECT_TRUE(request.ok()) << request.status();
  const Gpu& gpu = Gpu::Get();
  gpu.Must(gpu.driver().cuStreamSynchronize(hash->stream()), "hashing");
  return request.ok() ? hash->Take(&*request) : ContentHash();
}

TEST(ContentHashTest, TheDevicesValueIsTheHosts) {
  auto hash = DeviceHash::Create(&Gpu::Get().driver(), allocator::content_hash::KernelPtx());
  ASSERT_TRUE(hash.ok()) << hash.status();
  const Gpu& gpu = Gpu::Get();
  std::vector<uint64_t> content(40 * kMiB / 8);  // the largest is more than one round of the largest grid
  std::mt19937_64 random(1);
  for (uint64_t& word : content) word = random();
  Mapping memory(content.size() * 8);
  const auto copy_in = [&](uint64_t bytes) {
    gpu.Must(gpu.driver().cuMemcpyHtoDAsync_v2(memory.address(), content.data(), bytes, (*hash)->stream()),
             "copying what is hashed");
  };
  copy_in(content.size() * 8);
  // One vector, part of a thread block, ends in the middle of each round, whole grids.
  for (const uint64_t bytes : {uint64_t{16}, uint64_t{4096}, 32 * 1024 + uint64_t{48}, 2 * kMiB,
                               16 * kMiB - 16, 16 * kMiB + 4112, 40 * kMiB}) {
    const ContentHash before = HashOnDevice(hash->get(), memory.address(), bytes);
    EXPECT_EQ(before, allocator::HashOf(content.data(), bytes)) << bytes;
    content[bytes / 16] ^= uint64_t{1} << 40;
    copy_in(bytes);
    const ContentHash after = HashOnDevice(hash->get(), memory.address(), bytes);
    EXPECT_EQ(after, allocator::HashOf(content.data(), bytes)) << bytes;
    EXPECT_FALSE(after == before) << bytes;
  }
}

}  // namespace
}  // namespace spillway::gpu
