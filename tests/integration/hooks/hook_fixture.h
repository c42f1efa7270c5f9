// HookTest: the product's wrappers over the fake driver and fake residencies, with blocks on two devices.
// LaunchHookTest: the same, with a launch.

#ifndef SPILLWAY_TESTS_INTEGRATION_HOOKS_HOOK_FIXTURE_H_
#define SPILLWAY_TESTS_INTEGRATION_HOOKS_HOOK_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/fakes/test_map.h"
#include "tests/integration/hooks/fake_driver.h"
#include "tests/integration/hooks/fake_residency.h"

namespace spillway::integration {

class HookTest : public testing::Test {
 protected:
  static constexpr int kDevices = 2;

  HookTest() : map_(MakeTestMap(kDevices)) {
    driver() = FakeDriver();
    switched_off() = "";
    for (int device = 0; device < kDevices; ++device) PlaceBlocks(map_.get(), device, 8);
    Install();
    context_.addresses = map_.get();
    context_.switch_eviction_off = [](const char* reason) { switched_off() += std::string(reason) + ";"; };
  }
  ~HookTest() override {
    PublishHookContext(nullptr);
    delete GetHookState();
    SetHookState(nullptr);
  }

  // The hooks over the driver as it is now, which then gives functions out.
  void Install() {
    report_ = driver().Install();
    for (uintptr_t number = 0; number < 8; ++number) GiveOut(Function(number));
    driver().calls.clear();
  }
  // As the engine does when the first block is asked for.
  void Publish() {
    for (int device = 0; device < kDevices; ++device) {
      residency_[device].range = {Address(1, device), kTestBlockBytes};
      residency_[device].range_of = [this, device](allocator::BlockId id) {
        return allocator::BlockRange{Address(id.index() - 1, device), kTestBlockBytes};
      };
      AttachDevice(&context_, device, &residency_[device], reinterpret_cast<CUcontext>(0x5000 + device));
    }
    PublishHookContext(&context_);
  }

  static FakeDriver& driver() { return FakeDriver::Get(); }
  static std::string& switched_off() {
    static std::string text;
    return text;
  }
  uint64_t Address(uint32_t index, int device = 0) const { return BlockAddress(*map_, device, index); }
  static allocator::BlockId Id(uint32_t index, int device = 0) { return {device, index + 1}; }
  static CUstream Stream(uintptr_t number) { return reinterpret_cast<CUstream>(0x9000 + number); }
  static CUfunction Function(uintptr_t number = 0) {
    return reinterpret_cast<CUfunction>(0xa000 + 64 * number);
  }
  static CUmodule Module() { return reinterpret_cast<CUmodule>(0x3000); }
  // The job gets the function from the driver, as one of Module().
  static void GiveOut(CUfunction function) {
    // The fake leaves it as it is.
    EXPECT_EQ(driver().Hooked<Row::cuModuleGetFunction>()(&function, Module(), "test_kernel"), CUDA_SUCCESS);
  }
  using Ids = std::vector<allocator::BlockId>;

  // The only launch that residency 0 has seen; below, the only call that pinned.
  FakeResidency::Launch OnlyLaunch() const {
    EXPECT_EQ(residency_[0].launches.size(), 1u);
    return residency_[0].launches.empty() ? FakeResidency::Launch() : residency_[0].launches.front();
  }
  void ExpectPinned(allocator::PinReason reason, const Ids& ids) const {
    ASSERT_EQ(residency_[0].pins.size(), 1u);
    EXPECT_EQ(residency_[0].pins[0].reason, reason);
    EXPECT_EQ(residency_[0].pins[0].set, ids);
  }

  const std::unique_ptr<allocator::AddressMap> map_;
  HookReport report_;
  HookContext context_;
  FakeResidency residency_[kDevices];
};

// With launches that name two blocks.
class LaunchHookTest : public HookTest {
 protected:
  LaunchHookTest() { driver().param_sizes = {8, 4, 24}; }

  // A launch with a pointer to block `index`, a number, and a struct that points into block `index` + 1.
  CUresult Launch(uint32_t index, CUstream stream) {
    uint64_t pointer = Address(index);
    int number = 3;
    uint64_t value[3] = {1, Address(index + 1) + 100, 2};
    void* params[] = {&pointer, &number, value};
    return driver().Hooked<Row::cuLaunchKernel>()(Function(), 1, 1, 1, 1, 1, 1, 0, stream, params, nullptr);
  }
};

}  // namespace spillway::integration

#endif  // SPILLWAY_TESTS_INTEGRATION_HOOKS_HOOK_FIXTURE_H_
