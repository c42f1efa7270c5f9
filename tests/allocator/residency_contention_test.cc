// Launches that cannot be on the GPU together: fairness and freedom from hangs, and a launch on a second
// stream while a block is still on its way in.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/allocator/core_fixture.h"

namespace spillway::allocator {
namespace {

constexpr int kLaunches = 10'000;  // of both threads together

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Two threads, each with its own stream and two sets of `chunks` chunks that it uses in turn, on a device
// with memory for one set: every launch must evict.
void TwoThreads(uint64_t budget_chunks, uint64_t chunks) {
  CoreSetup setup;
  setup.budget_bytes = (budget_chunks + 1) * kChunk;  // one chunk is the external share
  setup.external_share_bytes = kChunk;
  setup.free_reserve_bytes = 1;
  setup.host_bytes = 16 << 20;
  CoreDevice device(setup);
  double finished[2] = {};
  std::atomic<uint64_t> wrong{0};
  const double start = Now();
  std::vector<std::thread> threads;
  for (int who = 0; who < 2; ++who) {
    threads.emplace_back([&, who] {
      CoreDevice::Driver()->cuCtxSetCurrent(CoreDevice::Context());
      const CUstream stream = device.NewStream();
      std::vector<CUdeviceptr> sets[2];
      for (std::vector<CUdeviceptr>& set : sets) {
        for (uint64_t i = 0; i < chunks; i += 2) {
          set.push_back(device.MustAllocate(std::min<uint64_t>(2, chunks - i) * kChunk, stream));
        }
      }
      for (int launch = 0; launch < kLaunches / 2; ++launch) {
        const CUresult result =
            device.Launch(stream, sets[launch % 2], [&wrong, launch, who](const auto& blocks) {
              for (CUdeviceptr block : blocks) {
                if (launch > 1) wrong += CoreDevice::Differences(block, 4096, (launch - 2) * 2 + who);
                CoreDevice::Fill(block, 4096, launch * 2 + who);
              }
            });
        ASSERT_EQ(result, CUDA_SUCCESS) << device->LastError();
      }
      finished[who] = Now() - start;
    });
  }
  for (std::thread& thread : threads) thread.join();
  device.Synchronize();
  EXPECT_EQ(wrong.load(), 0u);
  EXPECT_GE(device->Stats().evictions, static_cast<uint64_t>(kLaunches)) << "the sets must not fit together";
  EXPECT_LT(std::max(finished[0], finished[1]), 2 * std::min(finished[0], finished[1]));
  device->CheckInvariants();
}

TEST(ResidencyContentionTest, SetsOfSixtyPercentTakeTurns) { TwoThreads(10, 6); }

TEST(ResidencyContentionTest, BudgetOfExactlyOneSet) { TwoThreads(6, 6); }

TEST(ResidencyContentionTest, SecondStreamDuringASlowCopyInReadsWholeBlocks) {
  CoreSetup setup;
  setup.budget_bytes = 5 << 19;
  setup.host_bytes = 32 << 20;
  setup.disk = false;
  CoreDevice device(setup);
  constexpr uint64_t kBytes = 1 << 20;
  const CUstream streams[2] = {device.NewStream(), device.NewStream()};
  std::vector<CUdeviceptr> blocks;
  for (int i = 0; i < 4; ++i) {
    blocks.push_back(device.MustAllocate(kBytes));
    ASSERT_EQ(
        device.Launch(nullptr, {blocks[i]}, [i](const auto& a) { CoreDevice::Fill(a[0], kBytes, i + 1); }),
        CUDA_SUCCESS);
    device.Synchronize();
  }
  SetCopyBandwidth("100000000");  // 1 MiB takes 10 ms
  std::atomic<uint64_t> wrong{0};
  for (int round = 0; round < 40; ++round) {
    const int which = round % 4;
    for (const CUstream stream : streams) {
      ASSERT_EQ(device.Launch(stream, {blocks[which]},
                              [&wrong, which](const auto& a) {
                                wrong += CoreDevice::Differences(a[0], kBytes, which + 1);
                              }),
                CUDA_SUCCESS);
    }
  }
  SetCopyBandwidth("0");
  device.Synchronize();
  EXPECT_EQ(wrong.load(), 0u);
  EXPECT_GT(device->Stats().fetched_bytes, 10 * kBytes);
}

}  // namespace
}  // namespace spillway::allocator
