// CUDA_VISIBLE_DEVICES: which devices there are, and in which order.
#include "integration/simcuda/driver/machine/visible_devices.h"

#include <sys/wait.h>

#include "tests/integration/simcuda/driver_test_base.h"

namespace simcuda_test {
namespace {

using Numbers = std::vector<int>;
using simcuda::VisibleDevices;

TEST(VisibleDevicesTest, WithoutAListAllAreSeen) {
  EXPECT_EQ(VisibleDevices(nullptr, 3), (Numbers{0, 1, 2}));
}

TEST(VisibleDevicesTest, TheListGivesTheOrder) {
  EXPECT_EQ(VisibleDevices("2,0", 3), (Numbers{2, 0}));
  EXPECT_EQ(VisibleDevices(" 1", 3), (Numbers{1}));
}

TEST(VisibleDevicesTest, WhatFollowsAnEntryThatNamesNoDeviceIsNotSeen) {
  EXPECT_EQ(VisibleDevices("0,7,1", 3), (Numbers{0}));
  EXPECT_EQ(VisibleDevices("1,-1,0", 3), (Numbers{1}));
  EXPECT_EQ(VisibleDevices("1,x,0", 3), (Numbers{1}));
  EXPECT_EQ(VisibleDevices("32", 3), Numbers{});
  EXPECT_EQ(VisibleDevices("", 3), Numbers{});
}

TEST(VisibleDevicesTest, ADeviceThatIsNamedTwiceHidesAll) {
  EXPECT_EQ(VisibleDevices("0,1,0", 3), Numbers{});
}

TEST(VisibleDevicesTest, UuidsCountByABeginningThatIsTheirsAlone) {
  EXPECT_EQ(VisibleDevices("GPU-73696d63-7564-612d-6465-766963652d31,0", 3), (Numbers{1, 0}));
  EXPECT_EQ(VisibleDevices("GPU-73696d63", 1), (Numbers{0}));
  EXPECT_EQ(VisibleDevices("GPU-73696d63", 3), Numbers{});  // three begin so
}

// The driver begins once in a process, so each case has its own.
int StatusOfChild(const char* list, int (*judge)()) {
  const pid_t child = fork();
  if (child == 0) {
    setenv("SIMCUDA_DEVICES", "3", 1);
    setenv("CUDA_VISIBLE_DEVICES", list, 1);
    _exit(judge());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(VisibleDevicesTest, TheDriverCountsAndNamesThem) {
  EXPECT_EQ(
      StatusOfChild("2,0",
                    [] {
                      int count = 0;
                      CUuuid uuid{};
                      if (cuInit(0) != CUDA_SUCCESS || cuDeviceGetCount(&count) != CUDA_SUCCESS || count != 2)
                        return 1;
                      if (cuDeviceGetUuid(&uuid, 0) != CUDA_SUCCESS) return 2;
                      return std::string(uuid.bytes, 16) == simcuda::DeviceUuid(2) ? 0 : 3;
                    }),
      0);
}

TEST(VisibleDevicesTest, WithoutADeviceTheDriverDoesNotBegin) {
  EXPECT_EQ(StatusOfChild("32", [] { return static_cast<int>(cuInit(0)); }), CUDA_ERROR_NO_DEVICE);
}

}  // namespace
}  // namespace simcuda_test
