// Kernels of each origin, by handles of each kind, on a driver that is as strict as a real one: a question for a
// function answers INVALID_VALUE for a kernel and the other way round, as for an index past the last parameter.
// The block that the launch names has been evicted before; a missed pointer is a touch of unmapped memory.

#include <atomic>

#include "tests/integration/hooks/escaped_memory_fixture.h"

namespace spillway::integration {
namespace {

// What the driver answers to a question for a kernel's parameters; CUDA_SUCCESS: as it is.
std::atomic<CUresult> g_kernel_query_fails{CUDA_SUCCESS};
CUresult KernelGetParamInfo(CUkernel kernel, size_t index, size_t* offset, size_t* size) {
  if (g_kernel_query_fails != CUDA_SUCCESS) return g_kernel_query_fails;
  return reinterpret_cast<decltype(&::cuKernelGetParamInfo)>(Symbol("cuKernelGetParamInfo"))(kernel, index,
                                                                                             offset, size);
}

class KernelOriginsTest : public EscapedMemoryTest {
 protected:
  static constexpr char kTouch[] = "touch";

  KernelOriginsTest()
      : EscapedMemoryTest({{"cuKernelGetParamInfo", reinterpret_cast<void*>(&KernelGetParamInfo)}}) {
    g_kernel_query_fails = CUDA_SUCCESS;
    simcuda_.set("HANDLES", "answer");
    context_.switch_eviction_off = [](const char*) { ++switched_off_; };
    switched_off_ = 0;
    static const bool registered = [] {
      Register(kTouch,
               [](const simcuda_launch*, void** params) {
                 auto* const word = *static_cast<volatile uint32_t**>(params[0]);
                 *word = *word + 1;
               },
               {8});
      return true;
    }();
    EXPECT_TRUE(registered);
    target_ = Target(41);
    other_ = Target(7);
    Press();
  }
  ~KernelOriginsTest() override {
    device_.Synchronize();
    simcuda_.set("HANDLES", "stop");
  }

  CUlibrary Library(Way way = Way::kHooked) {
    CUlibrary library = nullptr;
    EXPECT_EQ(Hooked<Row::cuLibraryLoadData>(way)(&library, ImageOf(kTouch).c_str(), nullptr, nullptr, 0,
                                                  nullptr, nullptr, 0),
              CUDA_SUCCESS);
    return library;
  }
  CUkernel KernelIn(CUlibrary library, Way way = Way::kHooked) {
    CUkernel kernel = nullptr;
    EXPECT_EQ(Hooked<Row::cuLibraryGetKernel>(way)(&kernel, library, kTouch), CUDA_SUCCESS);
    return kernel;
  }
  CUmodule Module(Way way = Way::kHooked) {
    CUmodule module = nullptr;
    EXPECT_EQ(Hooked<Row::cuModuleLoadData>(way)(&module, ImageOf(kTouch).c_str()), CUDA_SUCCESS);
    return module;
  }
  // Launches the kernel on the target, which no longer is on the GPU, and looks at what came of it.
  void ExpectReaches(void* handle) {
    Press();
    simcuda_.reset();
    EXPECT_EQ(Launch(static_cast<CUfunction>(handle), {&target_}), CUDA_SUCCESS);
    device_.Synchronize();
    EXPECT_EQ(Missed(), 0u) << "a pointer of the launch was missed";
    uint32_t value = 0;
    EXPECT_EQ(Hooked<Row::cuMemcpyDtoH_v2>()(&value, target_, sizeof(value)), CUDA_SUCCESS);
    EXPECT_EQ(value, ++expected_);
  }
  void FreeOthers() {
    for (const CUdeviceptr other : others_) EXPECT_EQ(Hooked<Row::cuMemFree_v2>()(other), CUDA_SUCCESS);
    others_.clear();
  }
  void AllocateOthers() {
    for (int i = 0; i < kOthers; ++i) others_.push_back(device_.MustAllocate(kBlock));
  }
  static CUmodule OwnerOf(CUfunction function) {
    CUmodule module = nullptr;
    EXPECT_EQ(reinterpret_cast<decltype(&::cuFuncGetModule)>(Symbol("cuFuncGetModule"))(&module, function),
              CUDA_SUCCESS);
    return module;
  }
  uint64_t Evictions() { return device_->Stats().evictions; }
  // The GPU is put under pressure again, and something leaves.
  void ExpectEvictionsGoOn() {
    const uint64_t before = Evictions();
    Press();
    EXPECT_GT(Evictions(), before);
    EXPECT_EQ(switched_off_, 0);
  }

  static inline int switched_off_ = 0;
  CUdeviceptr target_ = 0;
  CUdeviceptr other_ = 0;
  uint32_t expected_ = 41;
};

// ---- The three ways to a missed pointer.

TEST_F(KernelOriginsTest, AnotherLibrarysUnloadLeavesTheKindKnown) {
  const CUlibrary other = Library();
  const CUkernel kernel = KernelIn(Library());
  EXPECT_EQ(Hooked<Row::cuLibraryUnload>()(other), CUDA_SUCCESS);
  ExpectReaches(kernel);
  ExpectEvictionsGoOn();
}

TEST_F(KernelOriginsTest, AGraphNodeTellsTheKindOfItsKernel) {
  CUDA_KERNEL_NODE_PARAMS_v2 params = {};
  params.kern = KernelIn(Library(Way::kAround), Way::kAround);  // no hook has seen it
  params.gridDimX = params.gridDimY = params.gridDimZ = 1;
  params.blockDimX = params.blockDimY = params.blockDimZ = 1;
  void* arguments[] = {&target_};
  params.kernelParams = arguments;
  CUgraph graph = nullptr;
  ASSERT_EQ(Hooked<Row::cuGraphCreate>()(&graph, 0), CUDA_SUCCESS);
  CUgraphNode node = nullptr;
  ASSERT_EQ(Hooked<Row::cuGraphAddKernelNode_v2>()(&node, graph, nullptr, 0, &params), CUDA_SUCCESS);
  EXPECT_EQ(PinnedFor(PinReason::kGraph), 0u);
  CUgraphExec exec = nullptr;
  ASSERT_EQ(Hooked<Row::cuGraphInstantiateWithFlags>()(&exec, graph, 0), CUDA_SUCCESS);
  Press();
  simcuda_.reset();
  EXPECT_EQ(Hooked<Row::cuGraphLaunch>()(exec, nullptr), CUDA_SUCCESS);
  device_.Synchronize();
  EXPECT_EQ(Missed(), 0u);
  EXPECT_EQ(Hooked<Row::cuGraphExecDestroy>()(exec), CUDA_SUCCESS);
  EXPECT_EQ(Hooked<Row::cuGraphDestroy>()(graph), CUDA_SUCCESS);
  EXPECT_EQ(switched_off_, 0);
}

TEST_F(KernelOriginsTest, AfterAFailedQuestionNobodyAsksTheOtherKind) {
  const CUkernel kernel = KernelIn(Library());
  g_kernel_query_fails = CUDA_ERROR_UNKNOWN;
  Press();
  simcuda_.reset();
  // Nothing is known of its parameters: it gets everything, or is refused with out-of-memory.
  const CUresult result = Launch(reinterpret_cast<CUfunction>(kernel), {&target_});
  device_.Synchronize();
  EXPECT_EQ(Missed(), 0u) << "a pointer of the launch was missed";
  EXPECT_EQ(result, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(switched_off_, 0) << "the driver may answer the next time";
}

// ---- Each way to a handle.

TEST_F(KernelOriginsTest, AFunctionOfAModule) {
  CUfunction function = nullptr;
  ASSERT_EQ(Hooked<Row::cuModuleGetFunction>()(&function, Module(), kTouch), CUDA_SUCCESS);
  ExpectReaches(function);
  ExpectEvictionsGoOn();
}

TEST_F(KernelOriginsTest, AnEnumeratedFunction) {
  CUfunction functions[2] = {nullptr, reinterpret_cast<CUfunction>(0x123)};
  ASSERT_EQ(Hooked<Row::cuModuleEnumerateFunctions>()(functions, 2, Module()), CUDA_SUCCESS);
  EXPECT_EQ(functions[1], reinterpret_cast<CUfunction>(0x123));
  ExpectReaches(functions[0]);
}

TEST_F(KernelOriginsTest, AnEnumeratedKernel) {
  CUkernel kernel = nullptr;
  ASSERT_EQ(Hooked<Row::cuLibraryEnumerateKernels>()(&kernel, 1, Library()), CUDA_SUCCESS);
  ExpectReaches(kernel);
}

TEST_F(KernelOriginsTest, TheFunctionOfAKernel) {
  CUfunction function = nullptr;
  ASSERT_EQ(Hooked<Row::cuKernelGetFunction>()(&function, KernelIn(Library())), CUDA_SUCCESS);
  ExpectReaches(function);
}

TEST_F(KernelOriginsTest, AFunctionOfALibrarysModule) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  ASSERT_EQ(Hooked<Row::cuLibraryGetModule>()(&module, Library()), CUDA_SUCCESS);
  ASSERT_EQ(Hooked<Row::cuModuleGetFunction>()(&function, module, kTouch), CUDA_SUCCESS);
  ExpectReaches(function);
  EXPECT_EQ(GetHookState()->unknown_launches, 0u);
}

TEST_F(KernelOriginsTest, TheKernelOfACapturedNode) {
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  ASSERT_EQ(reinterpret_cast<CUresult (*)(CUgraph*, unsigned int)>(Symbol("cuGraphCreate"))(&graph, 0),
            CUDA_SUCCESS);
  CUDA_KERNEL_NODE_PARAMS_v2 params = {};
  params.kern = KernelIn(Library(Way::kAround), Way::kAround);
  params.gridDimX = params.gridDimY = params.gridDimZ = 1;
  params.blockDimX = params.blockDimY = params.blockDimZ = 1;
  void* arguments[] = {&target_};
  params.kernelParams = arguments;
  ASSERT_EQ(Hooked<Row::cuGraphAddKernelNode_v2>(Way::kAround)(&node, graph, nullptr, 0, &params),
            CUDA_SUCCESS);
  params = {};
  ASSERT_EQ(Hooked<Row::cuGraphKernelNodeGetParams_v2>()(node, &params), CUDA_SUCCESS);
  ASSERT_NE(params.kern, nullptr);
  ExpectReaches(params.kern);
  EXPECT_EQ(GetHookState()->unknown_launches, 0u);
  reinterpret_cast<CUresult (*)(CUgraph)>(Symbol("cuGraphDestroy"))(graph);
}

// ---- Handles that no hook has seen.

TEST_F(KernelOriginsTest, AnUnseenKernelReachesEverythingAndEvictionsGoOn) {
  const CUkernel kernel = KernelIn(Library(Way::kAround), Way::kAround);
  FreeOthers();  // what is left fits the budget together
  ExpectReaches(kernel);
  ExpectReaches(kernel);
  EXPECT_EQ(GetHookState()->unknown_launches, 2u);
  AllocateOthers();
  ExpectEvictionsGoOn();
}

TEST_F(KernelOriginsTest, AnUnseenKernelIsRefusedWhereEverythingDoesNotFit) {
  CUfunction function = nullptr;
  ASSERT_EQ(Hooked<Row::cuModuleGetFunction>(Way::kAround)(&function, Module(Way::kAround), kTouch),
            CUDA_SUCCESS);
  Press();
  simcuda_.reset();
  EXPECT_EQ(Launch(function, {&target_}), CUDA_ERROR_OUT_OF_MEMORY);
  device_.Synchronize();
  EXPECT_EQ(Missed(), 0u);
  ExpectEvictionsGoOn();
  // Once the job asks the driver for the same function, it is as any other.
  ASSERT_EQ(Hooked<Row::cuModuleGetFunction>()(&function, OwnerOf(function), kTouch), CUDA_SUCCESS);
  ExpectReaches(function);
}

TEST_F(KernelOriginsTest, AnUnloadedLibrarysHandleIsOfNoKnownOrigin) {
  const CUlibrary library = Library();
  const CUkernel kernel = KernelIn(library);
  ExpectReaches(kernel);
  EXPECT_EQ(Hooked<Row::cuLibraryUnload>()(library), CUDA_SUCCESS);
  FreeOthers();
  EXPECT_EQ(Launch(reinterpret_cast<CUfunction>(kernel), {&target_}), CUDA_ERROR_INVALID_HANDLE)
      << "the driver's own answer";
  EXPECT_EQ(GetHookState()->unknown_launches, 1u);
}

// With the stand-in ending the process at a question for the wrong kind, none is asked.
TEST_F(KernelOriginsTest, NothingIsAskedOfTheWrongKind) {
  simcuda_.set("HANDLES", "stop");
  CUfunction function = nullptr;
  const CUkernel kernel = KernelIn(Library());
  ASSERT_EQ(Hooked<Row::cuKernelGetFunction>()(&function, kernel), CUDA_SUCCESS);
  ExpectReaches(kernel);
  ExpectReaches(function);
  FreeOthers();
  ExpectReaches(KernelIn(Library(Way::kAround), Way::kAround));
}

}  // namespace
}  // namespace spillway::integration
