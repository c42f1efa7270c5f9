#include "integration/engine/tiers.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "integration/engine/node_sharing.h"
#include "io/os/log.h"

namespace spillway::integration {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

constexpr uint64_t kMib = 1 << 20;
constexpr auto kLimit = std::chrono::milliseconds(1000);

struct StandIn {
  std::unique_ptr<const allocator::CudaDriver> driver;
  CUcontext context = nullptr;
};

// The stand-in driver, opened once.
const StandIn& Device() {
  static const StandIn* const device = [] {
    setenv("SIMCUDA_MEMORY", "256MiB", 1);
    void* const library = dlopen(SPILLWAY_SIMCUDA_DRIVER, RTLD_NOW | RTLD_LOCAL);
    auto driver = allocator::CudaDriver::Load([library](const char* name) { return dlsym(library, name); });
    reinterpret_cast<CUresult (*)(unsigned int)>(dlsym(library, "cuInit"))(0);
    auto* const made = new StandIn{*std::move(driver), nullptr};
    made->driver->cuDevicePrimaryCtxRetain(&made->context, 0);
    return made;
  }();
  return *device;
}

class TiersTest : public testing::Test {
 protected:
  TiersTest() : waits_(os::Clock::System(), nullptr, settings_.wait_limit) {
    char folder[] = "/tmp/tiers_test_XXXXXX";
    folder_ = mkdtemp(folder);
    Name(folder_);
    settings_.disk_reserve = Size{};  // a full machine is no matter here
  }
  ~TiersTest() override { std::filesystem::remove_all(folder_); }
  void Name(const std::string& directory) {
    settings_.dirs = std::vector<std::vector<DirectoryEntry>>{{{directory, 64 * kMib}}};
  }
  Tiers Make() { return Tiers(&settings_, Device().driver.get(), &waits_); }
  static absl::Status Start(Tiers* tiers) { return tiers->Start(Device().context, 256 * kMib); }
  // Gives back the address space, too, which lives as long as a job's process: a sanitizer leaves little of
  // it.
  static void End(Tiers* tiers) {
    tiers->Shutdown(kLimit);
    Device().driver->cuMemAddressFree(tiers->addresses()->base(), tiers->addresses()->total_bytes());
  }

  std::string folder_;
  Settings settings_;
  os::WaitList waits_;
};

TEST_F(TiersTest, KernelsReachHostMemoryWhereATrialWorks) {
  settings_.host_memory = Size{.bytes = 64 * kMib};
  {
    Tiers tiers = Make();
    ASSERT_EQ(Start(&tiers), absl::OkStatus());
    EXPECT_TRUE(tiers.host()->reachable());
    End(&tiers);
  }
  allocator::CudaDriver copies_nothing = *Device().driver;
  copies_nothing.cuMemcpyHtoDAsync_v2 = [](CUdeviceptr, const void*, size_t, CUstream) {
    return CUDA_SUCCESS;
  };
  os::SetLogLevel(os::LogLevel::kInfo);
  testing::internal::CaptureStderr();
  {
    Tiers tiers(&settings_, &copies_nothing, &waits_);
    ASSERT_EQ(Start(&tiers), absl::OkStatus());
    EXPECT_FALSE(tiers.host()->reachable());
    End(&tiers);
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("kernels cannot use host memory here: "));
  settings_.reach = ReachHost::kOff;
  Tiers tiers = Make();
  ASSERT_EQ(Start(&tiers), absl::OkStatus());
  EXPECT_FALSE(tiers.host()->reachable());
  End(&tiers);
}

TEST_F(TiersTest, TheStartMakesAllParts) {
  Tiers tiers = Make();
  EXPECT_EQ(tiers.DeviceOf(&tiers), -1) << "before the start no address is ours";
  ASSERT_EQ(Start(&tiers), absl::OkStatus());
  ASSERT_NE(tiers.addresses(), nullptr);
  EXPECT_NE(tiers.host(), nullptr);
  EXPECT_NE(tiers.disk(), nullptr);
  EXPECT_NE(tiers.capacity(), nullptr);
  EXPECT_THAT(tiers.disk_paths(), ElementsAre(folder_));

  const uint64_t base = tiers.addresses()->device_base(0);
  EXPECT_EQ(tiers.DeviceOf(reinterpret_cast<void*>(base)), 0);
  EXPECT_EQ(tiers.DeviceOf(reinterpret_cast<void*>(base - 1)), -1);
  EXPECT_EQ(tiers.DeviceOf(reinterpret_cast<void*>(base + tiers.addresses()->total_bytes())), -1);
  EXPECT_EQ(tiers.DeviceOf(nullptr), -1);
  End(&tiers);
}

TEST_F(TiersTest, ADriverThatTakesNoHintIsReported) {
  static decltype(allocator::CudaDriver::cuMemAddressReserve) reserve;
  allocator::CudaDriver driver = *Device().driver;
  reserve = driver.cuMemAddressReserve;
  driver.cuMemAddressReserve = [](CUdeviceptr* start, size_t bytes, size_t alignment, CUdeviceptr,
                                  unsigned long long flags) {
    return reserve(start, bytes, alignment, 0, flags);
  };
  Tiers tiers(&settings_, &driver, &waits_);
  testing::internal::CaptureStderr();
  const absl::Status started = Start(&tiers);
  const std::string said = testing::internal::GetCapturedStderr();
  ASSERT_EQ(started, absl::OkStatus());
  EXPECT_THAT(said,
              HasSubstr("and accepts no other place: numbers passed to kernels may be taken for addresses"));
  End(&tiers);
}

TEST_F(TiersTest, AWriteBudgetBeginsWithWhatTheRecordHas) {
  setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  settings_.write_budget = WriteLimit{64 * kMib, std::chrono::hours(24)};
  {
    io::WriteBudget before(
        {.bytes = 64 * kMib, .interval = std::chrono::hours(24), .path = folder_ + "/spillway/writes"});
    before.CountWritten(40 * kMib);
    ASSERT_EQ(before.Record(), absl::OkStatus());
  }
  Tiers tiers = Make();
  ASSERT_EQ(Start(&tiers), absl::OkStatus());
  ASSERT_NE(tiers.writes(), nullptr);
  EXPECT_NEAR(static_cast<double>(tiers.writes()->left_bytes()), 24.0 * kMib, kMib);
  EXPECT_FALSE(tiers.capacity()->writes_spent());
  tiers.writes()->CountWritten(30 * kMib);
  EXPECT_TRUE(tiers.capacity()->writes_spent());
  End(&tiers);
  unsetenv("XDG_CACHE_HOME");
}

TEST_F(TiersTest, AWriteBudgetWithoutAPlaceForItsRecordSaysSo) {
  const std::string home = getenv("HOME") != nullptr ? getenv("HOME") : "/";
  unsetenv("HOME");
  settings_.write_budget = WriteLimit{64 * kMib, std::chrono::hours(24)};
  Tiers tiers = Make();
  testing::internal::CaptureStderr();
  const absl::Status started = Start(&tiers);
  const std::string lines = testing::internal::GetCapturedStderr();
  setenv("HOME", home.c_str(), 1);
  ASSERT_EQ(started, absl::OkStatus());
  EXPECT_THAT(lines, HasSubstr("SPILLWAY_WRITE_BUDGET holds for this process alone: without HOME"));
  End(&tiers);
}

TEST_F(TiersTest, AWriteBudgetOfNothingIsNoDisk) {
  settings_.write_budget = WriteLimit();
  Tiers tiers = Make();
  ASSERT_EQ(Start(&tiers), absl::OkStatus());
  EXPECT_EQ(tiers.disk(), nullptr);
  EXPECT_EQ(tiers.writes(), nullptr);
  End(&tiers);
}

TEST_F(TiersTest, ADirectoryThatWasNamedMustWork) {
  Name(folder_ + "/none");
  Tiers tiers = Make();
  const absl::Status status = Start(&tiers);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), StartsWith("SPILLWAY_DIRS: "));
  EXPECT_EQ(tiers.addresses(), nullptr);

  // The same object starts once the directory is there.
  std::filesystem::create_directory(folder_ + "/none");
  ASSERT_EQ(Start(&tiers), absl::OkStatus());
  EXPECT_NE(tiers.disk(), nullptr);
  const allocator::HostPool* const host = tiers.host();
  ASSERT_EQ(Start(&tiers), absl::OkStatus());
  EXPECT_EQ(tiers.host(), host) << "a second start makes nothing anew";
  End(&tiers);
}

CUresult PinNothing(void*, size_t, unsigned int) { return CUDA_ERROR_OUT_OF_MEMORY; }

// A process that is not served takes nothing from those that are.
TEST_F(TiersTest, WithoutHostMemoryTheProcessDoesNotShareIt) {
  allocator::CudaDriver driver = *Device().driver;
  driver.cuMemHostRegister_v2 = &PinNothing;
  const uint64_t host_bytes =
      64 * kMib + static_cast<uint64_t>(getpid());  // not that of another test's process
  settings_.host_memory = Size{host_bytes, 0};
  Tiers tiers(&settings_, &driver, &waits_);
  EXPECT_FALSE(Start(&tiers).ok());
  EXPECT_FALSE(Start(&tiers).ok());
  EXPECT_EQ(tiers.host_cap_bytes(), host_bytes) << "nor does the first try count at the second";
  EXPECT_EQ(ShareHostMemory(settings_, 256 * kMib).share->peers(), 0u);
}

TEST_F(TiersTest, WhereNothingLeavesThereIsNoDisk) {
  settings_.on_full = OnFull::kError;
  Tiers tiers = Make();
  ASSERT_EQ(Start(&tiers), absl::OkStatus());
  EXPECT_EQ(tiers.disk(), nullptr);
  EXPECT_TRUE(tiers.disk_paths().empty());
  EXPECT_NE(tiers.addresses(), nullptr);
  End(&tiers);
}

}  // namespace
}  // namespace spillway::integration
