// The deny list and audit mode at the gate, over the fake driver and fake residencies.

#include "integration/hooks/launch_reports.h"

#include "tests/integration/hooks/hook_fixture.h"

namespace spillway::integration {
namespace {

using allocator::HoldReason;

class AuditHooksTest : public HookTest {
 protected:
  AuditHooksTest() { driver().param_sizes = {8}; }
  ~AuditHooksTest() override { GetHookState()->functions.SetDenyList(nullptr); }

  void Deny(const std::string& lines) {
    ASSERT_TRUE(list_.Add(lines, "list").ok());
    GetHookState()->functions.SetDenyList(&list_);
    Publish();
  }
  CUresult Launch(uint64_t word, uintptr_t function = 0) {
    void* params[] = {&word};
    return driver().Hooked<Row::cuLaunchKernel>()(Function(function), 1, 1, 1, 1, 1, 1, 0, Stream(1), params,
                                                  nullptr);
  }

  DenyList list_;
};

TEST_F(AuditHooksTest, DeniedKernelHoldsItsBlocksAndReachesAll) {
  Deny("test_*\n");
  EXPECT_EQ(Launch(Address(2)), CUDA_SUCCESS);
  EXPECT_EQ(residency_[0].launches_reaching_all, 1);
  EXPECT_EQ(OnlyLaunch().set, Ids{Id(2)});
  ExpectHeld(HoldReason::kDenied, {Id(2)});
  EXPECT_EQ(driver().CountOf("cuLaunchKernel"), 1u);
}

TEST_F(AuditHooksTest, DeniedKernelThatNamesNothingReachesAll) {
  Deny("test_kernel\n");
  EXPECT_EQ(Launch(5), CUDA_SUCCESS);
  EXPECT_EQ(residency_[0].launches_reaching_all, 1);
  EXPECT_TRUE(residency_[0].holds.empty());
}

TEST_F(AuditHooksTest, DeniedKernelGoesOnWithoutRoomToHoldAndIsRefusedWithoutRoomForAll) {
  Deny("test_kernel\n");
  residency_[0].hold_status = absl::ResourceExhaustedError("no room");
  EXPECT_EQ(Launch(Address(2)), CUDA_SUCCESS);
  EXPECT_EQ(residency_[0].launches_reaching_all, 1);
  residency_[0].refuse = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_EQ(Launch(Address(2)), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(driver().CountOf("cuLaunchKernel"), 1u);
}

TEST_F(AuditHooksTest, OtherKernelsAreNotDenied) {
  Deny("another\ntest_kernel only_from_this.so\n");
  EXPECT_EQ(Launch(Address(2)), CUDA_SUCCESS);
  EXPECT_EQ(residency_[0].launches_reaching_all, 0);
  EXPECT_TRUE(residency_[0].holds.empty());
}

TEST_F(AuditHooksTest, DeniedKernelOnSeveralDevicesEndsEviction) {
  Deny("test_kernel\n");
  EXPECT_EQ(Launch(Address(1, 1)), CUDA_SUCCESS);
  EXPECT_EQ(residency_[0].launches_reaching_all, 1);  // as any call that cannot be followed
  EXPECT_EQ(residency_[1].launches_reaching_all, 1);
  EXPECT_NE(switched_off().find("test_kernel"), std::string::npos) << switched_off();
}

TEST_F(AuditHooksTest, DeniedKernelInACaptureEndsEviction) {
  Deny("test_kernel\n");
  GetHookState()->captures.store(1);
  driver().capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  EXPECT_EQ(Launch(Address(2)), CUDA_SUCCESS);
  EXPECT_EQ(residency_[0].launches_reaching_all, 0);
  EXPECT_NE(switched_off().find("test_kernel"), std::string::npos) << switched_off();
}

TEST_F(AuditHooksTest, InAuditModeLaunchesThatNameNothingAreAuditedToo) {
  Publish();
  EXPECT_EQ(Launch(5), CUDA_SUCCESS);
  EXPECT_TRUE(residency_[0].launches.empty());
  context_.audit = true;
  EXPECT_EQ(Launch(5), CUDA_SUCCESS);
  EXPECT_TRUE(OnlyLaunch().set.empty());
  EXPECT_EQ(OnlyLaunch().tag, HashName("test_kernel"));
  CUgraphExec exec = nullptr;
  EXPECT_EQ(driver().Hooked<Row::cuGraphLaunch>()(exec, Stream(2)), CUDA_SUCCESS);
  ASSERT_EQ(residency_[0].launches.size(), 2u);
  EXPECT_EQ(residency_[0].launches[1].stream.handle, Stream(2));
}

TEST_F(AuditHooksTest, AuditorNamesKernelsAndCalls) {
  Publish();
  ASSERT_EQ(Launch(5), CUDA_SUCCESS);
  std::vector<Auditor::Kernel> recorded;
  Auditor auditor(&GetHookState()->functions, [&](const Auditor::Kernel& kernel) {
    recorded.push_back(kernel);
    return std::string("RECORDED");
  });
  auditor.OnPassed(0);
  testing::internal::CaptureStderr();
  auditor.OnFault({0, 7, HashName("test_kernel"), CUDA_ERROR_ILLEGAL_ADDRESS, {{0x1000, 64}}});
  auditor.OnFault({1, 8, HashName("cuMemcpyDtoHAsync"), CUDA_ERROR_LAUNCH_FAILED, {}});
  const std::string text = testing::internal::GetCapturedStderr();
  ASSERT_EQ(recorded.size(), 1u);
  EXPECT_EQ(recorded[0].name, "test_kernel");
  EXPECT_EQ(recorded[0].launch, 7u);
  EXPECT_NE(text.find("launch 7 on GPU 0 ended in CUDA_ERROR_ILLEGAL_ADDRESS: kernel test_kernel"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("1 block: 0x1000 (64 bytes). RECORDED"), std::string::npos) << text;
  EXPECT_NE(text.find("launch 8 on GPU 1 ended in CUDA_ERROR_LAUNCH_FAILED: cuMemcpyDtoHAsync"),
            std::string::npos)
      << text;
  EXPECT_EQ(auditor.Summary(), "audit: 3 launches, 2 faults");
}

}  // namespace
}  // namespace spillway::integration
