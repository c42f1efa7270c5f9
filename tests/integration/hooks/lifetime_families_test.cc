#include "integration/hooks/lifetime_families.h"

#include <functional>

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

// Only these codes come from a capture that has ended. After any other it may go on, and its launches are not real.
TEST_F(LifetimeFamiliesTest, ACaptureIsCountedUntilTheDriverSaysThatItHasEnded) {
  Publish();
  const auto captures_after = [&](CUresult result) {
    driver().results["cuStreamBeginCapture_v2"] = {CUDA_SUCCESS};
    driver().Hooked<Row::cuStreamBeginCapture_v2>()(Stream(1), CU_STREAM_CAPTURE_MODE_GLOBAL);
    driver().results["cuStreamEndCapture"] = {result};
    CUgraph graph = nullptr;
    driver().Hooked<Row::cuStreamEndCapture>()(Stream(1), &graph);
    return GetHookState()->captures.exchange(0);
  };
  for (const CUresult ended :
       {CUDA_SUCCESS, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, CUDA_ERROR_STREAM_CAPTURE_UNJOINED}) {
    EXPECT_EQ(captures_after(ended), 0) << ended;
  }
  for (const CUresult refused :
       {CUDA_ERROR_ILLEGAL_STATE, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
        CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_CONTEXT_IS_DESTROYED,
        CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_NOT_INITIALIZED, CUDA_ERROR_UNKNOWN}) {
    EXPECT_EQ(captures_after(refused), 1) << refused;
  }
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

TEST_F(LifetimeFamiliesTest, AFunctionOfAnotherKernelInTheNextContextIsAskedAnew) {
  Publish();
  const auto library = reinterpret_cast<CUlibrary>(0x7100);
  uint64_t words[2] = {0, Address(2)};
  void* params[] = {words};
  const auto launch_function_of = [&](uintptr_t kernel) {
    CUkernel from = reinterpret_cast<CUkernel>(kernel);
    driver().Hooked<Row::cuLibraryGetKernel>()(&from, library, "kernel");
    CUfunction function = Function();
    driver().Hooked<Row::cuKernelGetFunction>()(&function, from);
    driver().Hooked<Row::cuLaunchKernel>()(function, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr);
  };
  const auto context = reinterpret_cast<CUcontext>(0x7800);
  const std::function<void()> ends[] = {
      [&] { driver().Hooked<Row::cuCtxDestroy_v2>()(context); },
      [&] { driver().Hooked<Row::cuDevicePrimaryCtxRelease_v2>()(0); },
      [&] { driver().Hooked<Row::cuDevicePrimaryCtxReset_v2>()(0); },
      [&] { driver().Hooked<Row::cuGreenCtxDestroy>()(reinterpret_cast<CUgreenCtx>(0x7900)); }};
  uintptr_t kernel = 0x7300;
  for (const auto& end : ends) {
    driver().param_sizes = {8};
    launch_function_of(kernel += 0x40);
    EXPECT_TRUE(residency_[0].launches.empty());
    end();
    driver().param_sizes = {16};
    launch_function_of(kernel += 0x40);
    EXPECT_EQ(OnlyLaunch().set, Ids{Id(2)});
    residency_[0].launches.clear();
    end();
  }
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
