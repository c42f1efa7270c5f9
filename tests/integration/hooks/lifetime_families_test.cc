#include "integration/hooks/lifetime_families.h"

#include "tests/integration/hooks/hook_fixture.h"

namespace spillway::integration {
namespace {

class LifetimeFamiliesTest : public HookTest {};

TEST_F(LifetimeFamiliesTest, AFailedCaptureBeginIsNotCounted) {
  Publish();
  driver().results["cuStreamBeginCapture_v2"] = {CUDA_ERROR_ILLEGAL_STATE};
  driver().Hooked<Row::cuStreamBeginCapture_v2>()(Stream(1), CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_EQ(GetHookState()->captures, 0);
  EXPECT_EQ(residency_[0].captures_ended.size(), 1u);
}

TEST_F(LifetimeFamiliesTest, WhatEndsIsReportedBefore) {
  Publish();
  driver().Hooked<Row::cuStreamDestroy_v2>()(Stream(7));
  for (const FakeResidency& residency : residency_) {
    EXPECT_EQ(residency.destroyed, std::vector<CUstream>{Stream(7)});
  }
}

TEST_F(LifetimeFamiliesTest, AGreenContextThatMayBecomeCurrentEndsEvictions) {
  Publish();
  CUcontext context = nullptr;
  driver().Hooked<Row::cuCtxFromGreenCtx>()(&context, nullptr);
  EXPECT_NE(switched_off().find("cuCtxFromGreenCtx"), std::string::npos) << switched_off();
  EXPECT_TRUE(GetHookState()->other_contexts);
}

TEST_F(LifetimeFamiliesTest, AnUnloadedFunctionIsAskedAnew) {
  Publish();
  driver().param_sizes = {8};
  uint64_t words[2] = {0, Address(2)};
  void* params[] = {words};
  const auto launch = [&] {
    driver().Hooked<Row::cuLaunchKernel>()(Function(), 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr);
  };
  launch();
  EXPECT_TRUE(residency_[0].launches.empty());  // one word of parameters: no address
  driver().param_sizes = {16};
  launch();
  EXPECT_TRUE(residency_[0].launches.empty());  // still the old layout
  driver().Hooked<Row::cuModuleUnload>()(reinterpret_cast<CUmodule>(0x7000));
  launch();
  EXPECT_TRUE(residency_[0].launches.empty()) << "another module's end";
  driver().Hooked<Row::cuModuleUnload>()(Module());
  GiveOut(Function());
  launch();
  EXPECT_EQ(OnlyLaunch().set, Ids{Id(2)});
}

TEST_F(LifetimeFamiliesTest, ALoadedModuleHasNothingOfAnEarlierOne) {
  Publish();
  driver().param_sizes = {8};
  uint64_t words[2] = {0, Address(2)};
  void* params[] = {words};
  const auto launch = [&] {
    driver().Hooked<Row::cuLaunchKernel>()(Function(), 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr);
  };
  launch();
  driver().param_sizes = {16};
  CUmodule module = Module();  // the earlier one of that handle has ended with its context
  driver().Hooked<Row::cuModuleLoadData>()(&module, "image");
  GiveOut(Function());
  launch();
  EXPECT_EQ(OnlyLaunch().set, Ids{Id(2)});
}

// Each call that gives handles out tells the kind, and what the handles end with.
TEST_F(LifetimeFamiliesTest, HandlesAreKnownByTheCallThatGaveThemOut) {
  Publish();
  const auto library = reinterpret_cast<CUlibrary>(0x7100);
  auto module = reinterpret_cast<CUmodule>(0x7200);  // that of the library
  auto kernel = reinterpret_cast<CUkernel>(0x7300);
  CUfunction functions[2] = {reinterpret_cast<CUfunction>(0x7400), reinterpret_cast<CUfunction>(0x7440)};
  auto of_kernel = reinterpret_cast<CUfunction>(0x7480);
  FunctionRegistry& known = GetHookState()->functions;
  driver().param_sizes = {8};
  driver().counts = 1;  // of what the module holds: the second place of the list is left alone
  driver().Hooked<Row::cuLibraryGetModule>()(&module, library);
  driver().Hooked<Row::cuLibraryGetKernel>()(&kernel, library, "one");
  driver().Hooked<Row::cuKernelGetFunction>()(&of_kernel, kernel);
  driver().Hooked<Row::cuModuleEnumerateFunctions>()(functions, 2, module);
  EXPECT_TRUE(known.Find(functions[0])->understood);
  EXPECT_TRUE(known.Find(functions[1])->of_unknown_origin);
  EXPECT_TRUE(known.Find(of_kernel)->understood);
  EXPECT_FALSE(known.Find(kernel)->of_unknown_origin);
  EXPECT_FALSE(known.Find(kernel)->understood) << "the fake has layouts of functions alone";
  driver().Hooked<Row::cuLibraryUnload>()(library);
  for (void* const handle :
       {static_cast<void*>(functions[0]), static_cast<void*>(of_kernel), static_cast<void*>(kernel)}) {
    EXPECT_TRUE(known.Find(handle)->of_unknown_origin) << handle;
  }
  EXPECT_TRUE(known.Find(Function())->understood) << "of another module";
}

TEST_F(LifetimeFamiliesTest, ANodeGivesItsKernelOut) {
  FunctionRegistry& known = GetHookState()->functions;
  CUDA_KERNEL_NODE_PARAMS_v2 node = {};
  node.func = reinterpret_cast<CUfunction>(0x7500);  // the fake leaves it as it is
  driver().Hooked<Row::cuGraphKernelNodeGetParams_v2>()(nullptr, &node);
  EXPECT_TRUE(known.Find(node.func)->understood);
  node.func = nullptr;
  node.kern = reinterpret_cast<CUkernel>(0x7600);
  driver().Hooked<Row::cuGraphKernelNodeGetParams_v2>()(nullptr, &node);
  EXPECT_FALSE(known.Find(node.kern)->of_unknown_origin);
}

}  // namespace
}  // namespace spillway::integration
