// Two devices of one process: streams of the other device's context, launches whose blocks lie on both, one
// account of what may be promised off the GPUs. The stand-in's events are made as strict as a driver's: one
// can only be recorded on a stream of the context that it was made in.

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

#include "allocator/tier/shared_capacity.h"
#include "tests/allocator/motion_helpers.h"

namespace spillway::allocator {
namespace {

constexpr uint64_t kMib = 1 << 20;

// ---- A driver of two devices.

const CudaDriver* plain_driver = nullptr;
std::mutex events_mu;
std::map<CUevent, CUcontext> event_contexts;
std::atomic<int> wrong_records{0};

CUcontext Current() {
  CUcontext context = nullptr;
  plain_driver->cuCtxGetCurrent(&context);
  return context;
}

CUresult StrictCreate(CUevent* event, unsigned flags) {
  const CUresult result = plain_driver->cuEventCreate(event, flags);
  std::lock_guard<std::mutex> lock(events_mu);
  if (result == CUDA_SUCCESS) event_contexts[*event] = Current();
  return result;
}

CUresult StrictRecord(CUevent event, CUstream stream) {
  CUcontext context = Current();
  const bool is_default = stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
  if (!is_default) plain_driver->cuStreamGetCtx(stream, &context);
  {
    std::lock_guard<std::mutex> lock(events_mu);
    if (event_contexts[event] != context) {
      ++wrong_records;
      return CUDA_ERROR_INVALID_HANDLE;
    }
  }
  return plain_driver->cuEventRecord(event, stream);
}

// Devices other than its own that may access an address.
std::mutex access_mu;
std::map<CUdeviceptr, unsigned> access_masks;

CUresult RecordedSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access, size_t count) {
  std::lock_guard<std::mutex> lock(access_mu);
  for (size_t i = 0; i < count; ++i) access_masks[address] |= 1u << access[i].location.id;
  return plain_driver->cuMemSetAccess(address, bytes, access, count);
}

CUresult RecordedUnmap(CUdeviceptr address, size_t bytes) {
  std::lock_guard<std::mutex> lock(access_mu);
  access_masks[address] = 0;
  return plain_driver->cuMemUnmap(address, bytes);
}

unsigned AccessOf(CUdeviceptr address) {
  std::lock_guard<std::mutex> lock(access_mu);
  return access_masks[address];
}

const CudaDriver* Driver() {
  static const CudaDriver* const driver = [] {
    setenv("SIMCUDA_DEVICES", "2", 1);
    setenv("SIMCUDA_MEMORY", "1GiB", 1);  // what a residency of a test before holds stays with the driver
    plain_driver = CoreDevice::Driver();
    auto* const strict = new CudaDriver(*plain_driver);
    strict->cuEventCreate = &StrictCreate;
    strict->cuEventRecord = &StrictRecord;
    strict->cuMemSetAccess = &RecordedSetAccess;
    strict->cuMemUnmap = &RecordedUnmap;
    return strict;
  }();
  return driver;
}

CUcontext ContextOf(int device) {
  static CUcontext contexts[2] = {};
  Driver();
  CUcontext& context = contexts[device];
  if (context == nullptr) {
    EXPECT_EQ(Driver()->cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
  }
  return context;
}

template <typename Function>
Function Entry(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

// ---- The clock.

TEST(OtherDevicesStreamsTest, DefaultStreamsOfTwoContextsAreTwo) {
  DeviceError error;
  StreamClock clock(Driver(), ContextOf(0), &error);
  const StreamIndex own = clock.Find({nullptr, false});
  EXPECT_EQ(clock.Find({nullptr, false, ContextOf(0)}), own);
  const StreamIndex other = clock.Find({nullptr, false, ContextOf(1)});
  EXPECT_NE(other, own);
  EXPECT_EQ(clock.Find({CU_STREAM_LEGACY, false, ContextOf(1)}), other);
  const StreamIndex thread = clock.Find({nullptr, true});
  EXPECT_NE(clock.Find({nullptr, true, ContextOf(1)}), thread);
  EXPECT_EQ(clock.Find({CU_STREAM_PER_THREAD, true, ContextOf(1)}),
            clock.Find({nullptr, true, ContextOf(1)}));
}

void WaitForAll(StreamClock* clock) {
  os::WaitList waits;
  const os::Wait wait(&waits, os::WaitKind::kRunAhead, "");
  const os::Atomic<bool> never{false};
  for (bool more = true; more;) ASSERT_TRUE(clock->WaitForOldest(wait, never, &more).ok());
}

TEST(OtherDevicesStreamsTest, AreCoveredByEventsOfTheirOwnContext) {
  DeviceError error;
  StreamClock clock(Driver(), ContextOf(0), &error);
  Driver()->cuCtxSetCurrent(ContextOf(1));
  CUstream of_other_device = nullptr;
  ASSERT_EQ(Driver()->cuStreamCreateWithPriority(&of_other_device, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
  Driver()->cuCtxSetCurrent(ContextOf(0));
  PauseStreams(true);
  std::vector<TimelineValue> values;
  for (const StreamRef& stream :
       {StreamRef{nullptr, false}, StreamRef{nullptr, false, ContextOf(1)}, StreamRef{of_other_device, false},
        StreamRef{nullptr, true, ContextOf(1)}}) {
    const StreamIndex index = clock.Find(stream);
    values.push_back({index, clock.Next(index, 1)});
    EXPECT_TRUE(clock.Cover(values.back()).ok());
  }
  clock.Poll();
  PauseStreams(false);
  WaitForAll(&clock);
  for (const TimelineValue& value : values) EXPECT_TRUE(clock.Completed(value));
  // Events are used again: each on the streams of its context.
  for (TimelineValue& value : values) {
    value.number = clock.Next(value.stream, 1);
    EXPECT_TRUE(clock.Cover(value).ok());
  }
  WaitForAll(&clock);
  clock.OnDestroy(of_other_device);
  EXPECT_EQ(Driver()->cuStreamDestroy_v2(of_other_device), CUDA_SUCCESS);
  EXPECT_EQ(wrong_records.load(), 0);
}

// ---- Two residencies.

class TwoDevicesTest : public testing::Test {
 protected:
  static constexpr uint64_t kBudget = 4 * kMib;
  static constexpr uint64_t kHost = 8 * kMib;

  TwoDevicesTest() {
    Driver()->cuCtxSetCurrent(ContextOf(0));
    addresses_ = std::move(*AddressMap::Reserve(Driver(), 2, uint64_t{1} << 30, kChunk));
    HostPool::Options host;
    host.buffer_bytes = kChunk;
    host.storage_bytes = kHost;
    host.evict_staging_buffers = host.fault_staging_buffers = 0;
    host_ = std::move(*HostPool::Create(Driver(), ContextOf(0), host));
    capacity_ = std::make_unique<SharedCapacity>(host_.get(), nullptr);
    for (int device : {0, 1}) {
      ResidencyOptions options;
      options.device = device;
      options.budget_bytes = kBudget;
      options.external_share_bytes = kChunk;
      ResidencyParts parts;
      parts.driver = Driver();
      parts.context = ContextOf(device);
      parts.addresses = addresses_.get();
      parts.host = host_.get();
      parts.capacity = capacity_.get();
      residencies_[device] = std::make_unique<DeviceResidency>(options, parts);
      EXPECT_TRUE(residencies_[device]->Start().ok());
    }
  }
  ~TwoDevicesTest() override {
    for (int device : {0, 1}) {
      Driver()->cuCtxSetCurrent(ContextOf(device));
      Driver()->cuCtxSynchronize();
      residencies_[device]->CheckInvariants();
      residencies_[device]->Shutdown();
    }
    EXPECT_EQ(wrong_records.load(), 0);
  }

  CUdeviceptr MustAllocate(int device, uint64_t bytes) {
    auto address = residencies_[device]->Allocate(bytes, {nullptr, false});
    EXPECT_TRUE(address.ok()) << address.status();
    return address.ok() ? *address : 0;
  }
  AccessSet SetOf(CUdeviceptr address) {
    AccessSet set;
    addresses_->Collect(address, &set);
    return set;
  }
  // On the device's default stream, as PyTorch launches.
  CUresult Write(int device, CUdeviceptr address, unsigned value, uint64_t bytes) {
    Driver()->cuCtxSetCurrent(ContextOf(device));
    static const auto memset =
        Entry<CUresult (*)(CUdeviceptr, unsigned, size_t, CUstream)>("cuMemsetD32Async");
    return residencies_[device]->Run(SetOf(address), {nullptr, false, ContextOf(device)}, 1,
                                     [&] { return memset(address, value, bytes / 4, nullptr); });
  }
  // The first word; waits for it.
  unsigned Read(int device, CUdeviceptr address) {
    Driver()->cuCtxSetCurrent(ContextOf(device));
    unsigned word = 0;
    EXPECT_EQ(residencies_[device]->RunPinned(
                  SetOf(address), {nullptr, false, ContextOf(device)}, 2,
                  [&] { return Driver()->cuMemcpyDtoHAsync_v2(&word, address, sizeof(word), nullptr); }),
              CUDA_SUCCESS);
    Driver()->cuCtxSynchronize();
    return word;
  }

  std::unique_ptr<AddressMap> addresses_;
  std::unique_ptr<HostPool> host_;
  std::unique_ptr<SharedCapacity> capacity_;
  std::unique_ptr<DeviceResidency> residencies_[2];
};

TEST_F(TwoDevicesTest, PromiseTheSharedCapacityOnce) {
  std::vector<CUdeviceptr> first;
  for (;;) {
    auto address = residencies_[0]->Allocate(kMib / 2, {nullptr, false});
    if (!address.ok()) {
      EXPECT_THAT(std::string(address.status().message()), testing::HasSubstr("8 MiB of host memory"));
      break;
    }
    first.push_back(*address);
  }
  EXPECT_GE(first.size(), 20u);  // 4 MiB on the GPU and 8 in host memory, less what must stay free
  std::vector<CUdeviceptr> second;
  absl::Status refusal;
  for (;;) {
    auto address = residencies_[1]->Allocate(kMib / 2, {nullptr, false});
    refusal = address.status();
    if (!address.ok()) break;
    second.push_back(*address);
  }
  EXPECT_EQ(second.size(), 8u) << "its own GPU with the unused share of external memory, and nothing beyond";
  EXPECT_THAT(std::string(refusal.message()), testing::HasSubstr("are for blocks of other GPUs"));
  // What the first gives up the second may have.
  for (size_t i = 0; i < 8; ++i) EXPECT_TRUE(residencies_[0]->Free(first[i]).ok());
  EXPECT_NE(MustAllocate(1, kMib / 2), 0u);
  for (size_t i = 8; i < first.size(); ++i) EXPECT_TRUE(residencies_[0]->Free(first[i]).ok());
  for (const CUdeviceptr address : second) EXPECT_TRUE(residencies_[1]->Free(address).ok());
  EXPECT_EQ(capacity_->promised_bytes(), 0u);
}

// The copy runs on the second device's default stream; what it reads must not leave the first device before
// its end.
TEST_F(TwoDevicesTest, ABlockUsedOnTheOtherDevicesStreamWaitsForIt) {
  constexpr uint64_t kBytes = 7 * kMib / 4;  // two fit, a third does not
  const CUdeviceptr source = MustAllocate(0, kBytes);
  ASSERT_EQ(Write(0, source, 7, kBytes), CUDA_SUCCESS);
  Driver()->cuCtxSynchronize();
  Driver()->cuCtxSetCurrent(ContextOf(1));
  static std::atomic<bool> go;
  go = false;
  static const auto host_function = Entry<CUresult (*)(CUstream, CUhostFn, void*)>("cuLaunchHostFunc");
  const auto wait = [](void*) { go.wait(false); };
  ASSERT_EQ(host_function(nullptr, wait, nullptr), CUDA_SUCCESS);
  alignas(4096) static unsigned copied[1024] = {};  // pinned: the call does not wait for the copy
  ASSERT_EQ(Driver()->cuMemHostRegister_v2(copied, sizeof(copied), 0), CUDA_SUCCESS);
  ASSERT_EQ(residencies_[0]->Run(
                SetOf(source), {nullptr, false, ContextOf(1)}, 3,
                [&] { return Driver()->cuMemcpyDtoHAsync_v2(copied, source, sizeof(copied), nullptr); }),
            CUDA_SUCCESS);
  const CUdeviceptr pinned = MustAllocate(0, kBytes);  // so that only `source` can leave
  ASSERT_EQ(Write(0, pinned, 9, kBytes), CUDA_SUCCESS);
  ASSERT_TRUE(residencies_[0]->Pin(SetOf(pinned), PinReason::kUnknownCall).ok());
  const CUdeviceptr next = MustAllocate(0, kBytes);
  std::atomic<bool> launched{false};
  bool gone_before_launch = false;
  std::thread other([&] {
    EXPECT_EQ(Write(0, next, 8, kBytes), CUDA_SUCCESS);
    gone_before_launch = go.load();
    launched = true;
  });
  const Block& block = residencies_[0]->core()->table.at(addresses_->Find(source));
  const auto leaving = [&] {
    const TableLock lock(residencies_[0]->core()->table);
    return block.state == BlockState::kEvicting;
  };
  EXPECT_TRUE(tests::WaitUntil([&] { return launched.load() || leaving(); }));
  AwaitPolls(residencies_[0]->thread(), 20);
  EXPECT_EQ(host_->storage_in_use(), 0u) << "the block is copied out while a stream is to read it";
  EXPECT_FALSE(launched.load()) << "the block left while a stream of the other device was to read it";
  go = true;
  go.notify_all();
  other.join();
  EXPECT_TRUE(gone_before_launch);
  Driver()->cuCtxSetCurrent(ContextOf(1));
  Driver()->cuCtxSynchronize();
  EXPECT_EQ(copied[0], 7u);
  EXPECT_EQ(Driver()->cuMemHostUnregister(copied), CUDA_SUCCESS);
  EXPECT_EQ(Read(0, source), 7u);
}

// As the hooks send it: pinned on both devices, in device order, and called in the context of its caller.
TEST_F(TwoDevicesTest, ACopyBetweenDevicesRunsInItsCallersContext) {
  constexpr uint64_t kBytes = kMib;
  constexpr int kBlocks = 5;  // of each device; 3 fit
  static const auto copy =
      Entry<CUresult (*)(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream)>(
          "cuMemcpyPeerAsync");
  std::vector<CUdeviceptr> from, to;
  for (unsigned i = 0; i < kBlocks; ++i) {
    from.push_back(MustAllocate(0, kBytes));
    to.push_back(MustAllocate(1, kBytes));
    ASSERT_EQ(Write(0, from.back(), 100 + i, kBytes), CUDA_SUCCESS);
  }
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < kBlocks; ++i) {
      const int home = i % 2;  // the copy is on the default stream of either device
      const CUcontext caller = ContextOf(home);
      const StreamRef stream{nullptr, false, caller};
      Driver()->cuCtxSetCurrent(ContextOf(0));
      Driver()->cuCtxSynchronize();  // what it reads was written on another stream
      Driver()->cuCtxSetCurrent(caller);
      const CUresult result = residencies_[0]->RunPinned(SetOf(from[i]), stream, 4, [&] {
        return residencies_[1]->RunPinned(SetOf(to[i]), stream, 4, [&] {
          EXPECT_EQ(Current(), caller);
          return copy(to[i], ContextOf(1), from[i], ContextOf(0), kBytes, nullptr);
        });
      });
      EXPECT_EQ(result, CUDA_SUCCESS);
      EXPECT_EQ(Current(), caller);
      Driver()->cuCtxSynchronize();
    }
    for (unsigned i = 0; i < kBlocks; ++i) {
      EXPECT_EQ(Read(1, to[i]), 100 + i);
      EXPECT_EQ(Read(0, from[i]), 100 + i);
    }
  }
  EXPECT_GT(residencies_[0]->Stats().fetched_bytes, 0u);
  EXPECT_GT(residencies_[1]->Stats().fetched_bytes, 0u);
}

// A kernel of the second device that reads a block of the first, as PyTorch launches where peers can reach
// each other.
TEST_F(TwoDevicesTest, ALaunchOnTheOtherDeviceMayAccessWhatItNames) {
  constexpr uint64_t kBytes = kMib;
  std::vector<CUdeviceptr> blocks;
  for (unsigned i = 0; i < 5; ++i) {  // 3 fit
    blocks.push_back(MustAllocate(0, kBytes));
    ASSERT_EQ(Write(0, blocks.back(), i, kBytes), CUDA_SUCCESS);
    EXPECT_EQ(AccessOf(blocks.back()), 0b01u);
  }
  for (int round = 0; round < 2; ++round) {  // in the second they have been out and are mapped anew
    for (const CUdeviceptr address : blocks) {
      Driver()->cuCtxSetCurrent(ContextOf(1));
      EXPECT_EQ(residencies_[0]->Run(SetOf(address), {nullptr, false, ContextOf(1)}, 5,
                                     [&] {
                                       EXPECT_EQ(AccessOf(address), 0b11u);
                                       return CUDA_SUCCESS;
                                     }),
                CUDA_SUCCESS);
    }
  }
  EXPECT_GT(residencies_[0]->Stats().fetched_bytes, 0u);
}

TEST_F(TwoDevicesTest, RecordStreamTellsDefaultStreamsApart) {
  const CUdeviceptr address = MustAllocate(0, kMib);
  ASSERT_EQ(Write(0, address, 1, kMib), CUDA_SUCCESS);
  const Block& block = residencies_[0]->core()->table.at(addresses_->Find(address));
  const auto recorded = [&] {
    const TableLock lock(residencies_[0]->core()->table);
    return block.allocation.recorded.size();
  };
  Driver()->cuCtxSetCurrent(ContextOf(0));
  EXPECT_TRUE(residencies_[0]->RecordStream(address, nullptr).ok());
  EXPECT_EQ(recorded(), 0u) << "the allocation's own stream";
  Driver()->cuCtxSetCurrent(ContextOf(1));
  EXPECT_TRUE(residencies_[0]->RecordStream(address, nullptr).ok());
  EXPECT_EQ(recorded(), 1u);
  EXPECT_TRUE(residencies_[0]->Free(address).ok());
}

}  // namespace
}  // namespace spillway::allocator
