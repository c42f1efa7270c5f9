// Handles of each kind are kept apart: one of the wrong kind, of what is gone, of nobody, or null, ends the process with
// words, or with SIMCUDA_HANDLES=answer gets the code that is written of the call.
#include <functional>

#include "tests/integration/simcuda/driver_test_base.h"

namespace simcuda_test {
namespace {

constexpr char kHandleImage[] = SIMCUDA_IMAGE_MAGIC "\nhandles_one\nhandles_none\n";

// One handle of each kind, as what any pointer may be taken for.
struct Handles {
  CUmodule module = nullptr;
  CUlibrary library = nullptr;
  CUfunction function = nullptr;
  CUkernel kernel = nullptr;
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUcontext context = nullptr;
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
};

class DriverHandlesTest : public DriverTest {
 protected:
  void SetUp() override {
    static const bool registered = [] {
      constexpr simcuda_parameter kParameters[] = {{0, 8}, {8, 4}};
      const auto nothing = [](const simcuda_launch*, void**) {};
      const simcuda_kernel one = {"handles_one", nothing, nullptr, kParameters, 2};
      const simcuda_kernel none = {"handles_none", nothing, nullptr, nullptr, 0};
      return simcuda_register_kernel(&one, nullptr) == 0 && simcuda_register_kernel(&none, nullptr) == 0;
    }();
    ASSERT_TRUE(registered);
    ASSERT_EQ(cuCtxGetCurrent(&of_.context), CUDA_SUCCESS);
    ASSERT_EQ(cuModuleLoadData(&of_.module, kHandleImage), CUDA_SUCCESS);
    ASSERT_EQ(cuLibraryLoadData(&of_.library, kHandleImage, nullptr, nullptr, 0, nullptr, nullptr, 0),
              CUDA_SUCCESS);
    ASSERT_EQ(cuModuleGetFunction(&of_.function, of_.module, "handles_one"), CUDA_SUCCESS);
    ASSERT_EQ(cuLibraryGetKernel(&of_.kernel, of_.library, "handles_one"), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamCreate(&of_.stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(cuEventCreate(&of_.event, CU_EVENT_DEFAULT), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphCreate(&of_.graph, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphAddEmptyNode(&of_.node, of_.graph, nullptr, 0), CUDA_SUCCESS);
  }
  void TearDown() override {
    cuGraphDestroy(of_.graph);
    cuEventDestroy(of_.event);
    cuStreamDestroy(of_.stream);
    DriverTest::TearDown();
  }
  CUresult Launch(void* function, CUstream stream = nullptr) {
    uint64_t word = 0;
    int number = 0;
    void* parameters[] = {&word, &number};
    return cuLaunchKernel(static_cast<CUfunction>(function), 1, 1, 1, 1, 1, 1, 0, stream, parameters,
                          nullptr);
  }
  // A handle of the kind at which nothing is any more.
  CUfunction DeadFunction() {
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    EXPECT_EQ(cuModuleLoadData(&module, kHandleImage), CUDA_SUCCESS);
    EXPECT_EQ(cuModuleGetFunction(&function, module, "handles_one"), CUDA_SUCCESS);
    EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
    return function;
  }

  Handles of_;
};

// A call with one handle, which may be any pointer.
struct HandleCase {
  const char* name;
  const char* takes;  // the words for what it wants
  CUresult answers;
  std::function<void*(const Handles&)> right;
  std::function<CUresult(void*)> call;
};

template <typename Handle>
Handle As(void* any) {
  return static_cast<Handle>(any);
}

size_t g_offset, g_size;
int g_number;
const char* g_name;
unsigned int g_count;

const HandleCase kCases[] = {
    {"cuFuncGetParamInfo", "a CUfunction", CUDA_ERROR_INVALID_VALUE,
     [](const Handles& h) { return h.function; },
     [](void* h) { return cuFuncGetParamInfo(As<CUfunction>(h), 0, &g_offset, &g_size); }},
    {"cuFuncGetName", "a CUfunction", CUDA_ERROR_INVALID_VALUE, [](const Handles& h) { return h.function; },
     [](void* h) { return cuFuncGetName(&g_name, As<CUfunction>(h)); }},
    {"cuFuncGetAttribute", "a CUfunction", CUDA_ERROR_INVALID_HANDLE,
     [](const Handles& h) { return h.function; },
     [](void* h) { return cuFuncGetAttribute(&g_number, CU_FUNC_ATTRIBUTE_NUM_REGS, As<CUfunction>(h)); }},
    {"cuFuncSetAttribute", "a CUfunction", CUDA_ERROR_INVALID_HANDLE,
     [](const Handles& h) { return h.function; },
     [](void* h) {
       return cuFuncSetAttribute(As<CUfunction>(h), CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024);
     }},
    {"cuFuncGetModule", "a CUfunction", CUDA_ERROR_INVALID_HANDLE,
     [](const Handles& h) { return h.function; },
     [](void* h) {
       CUmodule module;
       return cuFuncGetModule(&module, As<CUfunction>(h));
     }},
    {"cuKernelGetParamInfo", "a CUkernel", CUDA_ERROR_INVALID_VALUE,
     [](const Handles& h) { return h.kernel; },
     [](void* h) { return cuKernelGetParamInfo(As<CUkernel>(h), 0, &g_offset, &g_size); }},
    {"cuKernelGetName", "a CUkernel", CUDA_ERROR_INVALID_VALUE, [](const Handles& h) { return h.kernel; },
     [](void* h) { return cuKernelGetName(&g_name, As<CUkernel>(h)); }},
    {"cuKernelGetLibrary", "a CUkernel", CUDA_ERROR_INVALID_HANDLE, [](const Handles& h) { return h.kernel; },
     [](void* h) {
       CUlibrary library;
       return cuKernelGetLibrary(&library, As<CUkernel>(h));
     }},
    {"cuKernelGetFunction", "a CUkernel", CUDA_ERROR_INVALID_HANDLE,
     [](const Handles& h) { return h.kernel; },
     [](void* h) {
       CUfunction function;
       return cuKernelGetFunction(&function, As<CUkernel>(h));
     }},
    {"cuModuleGetFunctionCount", "a CUmodule", CUDA_ERROR_INVALID_HANDLE,
     [](const Handles& h) { return h.module; },
     [](void* h) { return cuModuleGetFunctionCount(&g_count, As<CUmodule>(h)); }},
    {"cuModuleGetFunction", "a CUmodule", CUDA_ERROR_INVALID_HANDLE,
     [](const Handles& h) { return h.module; },
     [](void* h) {
       CUfunction function;
       return cuModuleGetFunction(&function, As<CUmodule>(h), "handles_none");
     }},
    {"cuLibraryGetKernelCount", "a CUlibrary", CUDA_ERROR_INVALID_HANDLE,
     [](const Handles& h) { return h.library; },
     [](void* h) { return cuLibraryGetKernelCount(&g_count, As<CUlibrary>(h)); }},
    {"cuLibraryGetModule", "a CUlibrary", CUDA_ERROR_INVALID_HANDLE,
     [](const Handles& h) { return h.library; },
     [](void* h) {
       CUmodule module;
       return cuLibraryGetModule(&module, As<CUlibrary>(h));
     }},
    {"cuStreamWaitEvent", "a CUevent", CUDA_ERROR_INVALID_HANDLE, [](const Handles& h) { return h.event; },
     [](void* h) { return cuStreamWaitEvent(nullptr, As<CUevent>(h), 0); }},
    {"cuEventQuery", "a CUevent", CUDA_ERROR_INVALID_HANDLE, [](const Handles& h) { return h.event; },
     [](void* h) { return cuEventQuery(As<CUevent>(h)); }},
    {"cuCtxPushCurrent", "a CUcontext", CUDA_ERROR_INVALID_CONTEXT,
     [](const Handles& h) { return h.context; },
     [](void* h) {
       const CUresult result = cuCtxPushCurrent(As<CUcontext>(h));
       CUcontext popped;
       if (result == CUDA_SUCCESS) cuCtxPopCurrent(&popped);
       return result;
     }},
    {"cuGraphGetNodes", "a CUgraph", CUDA_ERROR_INVALID_VALUE, [](const Handles& h) { return h.graph; },
     [](void* h) {
       size_t count = 0;
       return cuGraphGetNodes(As<CUgraph>(h), nullptr, &count);
     }},
    {"cuGraphNodeGetType", "a CUgraphNode", CUDA_ERROR_INVALID_VALUE, [](const Handles& h) { return h.node; },
     [](void* h) {
       CUgraphNodeType type;
       return cuGraphNodeGetType(As<CUgraphNode>(h), &type);
     }},
};

// Each call with each handle: its own kind works, all others get the code.
TEST_F(DriverHandlesTest, EachCallTakesItsOwnKindOnly) {
  const HandlesAreAnswered answered;
  static const uint64_t zeros[64] = {};
  void* const all[] = {of_.module,
                       of_.library,
                       of_.function,
                       of_.kernel,
                       of_.stream,
                       of_.event,
                       of_.context,
                       of_.graph,
                       of_.node,
                       nullptr,
                       DeadFunction(),
                       const_cast<uint64_t*>(zeros),
                       reinterpret_cast<void*>(0x1234)};
  for (const HandleCase& one : kCases) {
    SCOPED_TRACE(one.name);
    void* const right = one.right(of_);
    for (void* handle : all) {
      EXPECT_EQ(one.call(handle), handle == right ? CUDA_SUCCESS : one.answers) << handle;
    }
  }
}

TEST_F(DriverHandlesTest, TheProcessEndsWithWords) {
  for (const HandleCase& one : kCases) {
    SCOPED_TRACE(one.name);
    const bool event = one.right(of_) == of_.event;
    void* const wrong = event ? static_cast<void*>(of_.stream) : static_cast<void*>(of_.event);
    const std::string words = std::string("takes ") + one.takes + " and was given .*: (it is a CU|no graph)";
    EXPECT_DEATH(one.call(wrong), words);
  }
}

TEST_F(DriverHandlesTest, TheWordsNameTheCallAndWhatWasGiven) {
  EXPECT_DEATH(cuFuncGetParamInfo(reinterpret_cast<CUfunction>(of_.kernel), 0, &g_offset, &g_size),
               "cuFuncGetParamInfo takes a CUfunction and was given 0x[0-9a-f]+: it is a CUkernel");
  EXPECT_DEATH(cuFuncGetName(&g_name, DeadFunction()),
               "cuFuncGetName takes .*: it was a CUfunction that is gone");
  EXPECT_DEATH(cuKernelGetParamInfo(nullptr, 0, &g_offset, &g_size),
               "takes a CUkernel and was given .*: it is null");
  static const uint64_t zeros[64] = {};
  EXPECT_DEATH(cuEventQuery(reinterpret_cast<CUevent>(const_cast<uint64_t*>(zeros))),
               "this driver has given out no such handle");
}

TEST_F(DriverHandlesTest, LaunchesAndOccupancyTakeEitherKind) {
  int blocks = 0;
  for (void* handle : {static_cast<void*>(of_.function), static_cast<void*>(of_.kernel)}) {
    EXPECT_EQ(Launch(handle), CUDA_SUCCESS);
    EXPECT_EQ(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, static_cast<CUfunction>(handle), 128, 0),
              CUDA_SUCCESS);
  }
  EXPECT_DEATH(Launch(of_.module), "cuLaunchKernel takes a CUfunction or a CUkernel .* it is a CUmodule");
  const HandlesAreAnswered answered;
  EXPECT_EQ(Launch(nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(Launch(DeadFunction()), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(Launch(of_.function, reinterpret_cast<CUstream>(of_.event)), CUDA_ERROR_INVALID_HANDLE);
}

// A question past the last parameter answers as a question for the wrong kind does: nothing tells them apart.
TEST_F(DriverHandlesTest, PastTheEndLooksLikeTheWrongKind) {
  const HandlesAreAnswered answered;
  EXPECT_EQ(cuFuncGetParamInfo(of_.function, 2, &g_offset, &g_size), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuFuncGetParamInfo(reinterpret_cast<CUfunction>(of_.kernel), 0, &g_offset, &g_size),
            CUDA_ERROR_INVALID_VALUE);
  CUfunction none = nullptr;
  ASSERT_EQ(cuModuleGetFunction(&none, of_.module, "handles_none"), CUDA_SUCCESS);
  EXPECT_EQ(cuFuncGetParamInfo(none, 0, &g_offset, &g_size), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverHandlesTest, GraphNodesWantEachKindInItsMember) {
  uint64_t word = 0;
  int number = 0;
  void* parameters[] = {&word, &number};
  CUDA_KERNEL_NODE_PARAMS params = {};
  params.gridDimX = params.gridDimY = params.gridDimZ = 1;
  params.blockDimX = params.blockDimY = params.blockDimZ = 1;
  params.kernelParams = parameters;
  params.kern = of_.kernel;
  CUgraphNode by_kernel = nullptr;
  ASSERT_EQ(cuGraphAddKernelNode(&by_kernel, of_.graph, nullptr, 0, &params), CUDA_SUCCESS);
  CUDA_KERNEL_NODE_PARAMS found = {};
  ASSERT_EQ(cuGraphKernelNodeGetParams(by_kernel, &found), CUDA_SUCCESS);
  EXPECT_EQ(found.func, nullptr);
  EXPECT_EQ(found.kern, of_.kernel);
  params.func = of_.function;  // and `kern` is not looked at
  params.kern = reinterpret_cast<CUkernel>(of_.event);
  CUgraphNode by_function = nullptr;
  ASSERT_EQ(cuGraphAddKernelNode(&by_function, of_.graph, nullptr, 0, &params), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphKernelNodeGetParams(by_function, &found), CUDA_SUCCESS);
  EXPECT_EQ(found.func, of_.function);
  const HandlesAreAnswered answered;
  params.func = reinterpret_cast<CUfunction>(of_.kernel);
  EXPECT_EQ(cuGraphAddKernelNode(&by_function, of_.graph, nullptr, 0, &params), CUDA_ERROR_INVALID_VALUE);
  params.func = nullptr;
  params.kern = reinterpret_cast<CUkernel>(of_.function);
  EXPECT_EQ(cuGraphAddKernelNode(&by_function, of_.graph, nullptr, 0, &params), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverHandlesTest, ALibraryHasAModuleAndFunctionsInEachContext) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CUfunction by_name = nullptr;
  ASSERT_EQ(cuLibraryGetModule(&module, of_.library), CUDA_SUCCESS);
  ASSERT_EQ(cuKernelGetFunction(&function, of_.kernel), CUDA_SUCCESS);
  ASSERT_EQ(cuModuleGetFunction(&by_name, module, "handles_one"), CUDA_SUCCESS);
  EXPECT_EQ(function, by_name);
  EXPECT_EQ(Launch(function), CUDA_SUCCESS);
  CUcontext other = nullptr;
  CUfunction elsewhere = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&other, 1), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxPushCurrent(other), CUDA_SUCCESS);
  EXPECT_EQ(cuKernelGetFunction(&elsewhere, of_.kernel), CUDA_SUCCESS);
  EXPECT_NE(elsewhere, function);
  EXPECT_EQ(Launch(function), CUDA_ERROR_INVALID_HANDLE) << "a function of another context";
  EXPECT_EQ(Launch(elsewhere), CUDA_SUCCESS);
  EXPECT_EQ(Launch(of_.kernel), CUDA_SUCCESS) << "a kernel is of none";
  EXPECT_EQ(cuEventRecord(of_.event, nullptr), CUDA_ERROR_INVALID_HANDLE) << "an event of another context";
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  CUcontext popped = nullptr;
  ASSERT_EQ(cuCtxPopCurrent(&popped), CUDA_SUCCESS);
  EXPECT_DEATH(cuModuleUnload(module), "it is the module of a CUlibrary");
  EXPECT_EQ(cuLibraryUnload(of_.library), CUDA_SUCCESS);
  const HandlesAreAnswered answered;
  EXPECT_EQ(Launch(function), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuModuleGetFunction(&by_name, module, "handles_one"), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(DriverHandlesTest, ADestroyedContextIsNoneAnyMore) {
  CUcontext context = nullptr;
  ASSERT_EQ(cuCtxCreate(&context, nullptr, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxPushCurrent(of_.context), CUDA_SUCCESS);  // so that it is not on top when it ends
  ASSERT_EQ(cuCtxDestroy(context), CUDA_SUCCESS);
  EXPECT_DEATH(cuCtxSetCurrent(context), "it was a CUcontext that is gone");
  CUcontext popped = nullptr;
  ASSERT_EQ(cuCtxPopCurrent(&popped), CUDA_SUCCESS);
  CUstream stream = nullptr;
  EXPECT_EQ(cuStreamCreate(&stream, 0), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  ASSERT_EQ(cuCtxPopCurrent(&popped), CUDA_SUCCESS);
}

// Its events and the modules that were loaded into it end with it, and what a library had there. The library goes
// on.
TEST_F(DriverHandlesTest, WhatAContextHadEndsWithIt) {
  CUcontext context = nullptr;
  ASSERT_EQ(cuCtxCreate(&context, nullptr, 0, 0), CUDA_SUCCESS);
  CUmodule loaded = nullptr, of_library = nullptr;
  CUfunction of_module = nullptr, of_kernel = nullptr, again = nullptr;
  ASSERT_EQ(cuModuleLoadData(&loaded, kHandleImage), CUDA_SUCCESS);
  ASSERT_EQ(cuModuleGetFunction(&of_module, loaded, "handles_one"), CUDA_SUCCESS);
  ASSERT_EQ(cuLibraryGetModule(&of_library, of_.library), CUDA_SUCCESS);
  ASSERT_EQ(cuKernelGetFunction(&of_kernel, of_.kernel), CUDA_SUCCESS);
  EXPECT_EQ(Launch(of_kernel), CUDA_SUCCESS);
  CUevent event = nullptr;
  ASSERT_EQ(cuEventCreate(&event, CU_EVENT_DEFAULT), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(event, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxDestroy(context), CUDA_SUCCESS);
  EXPECT_DEATH(cuEventQuery(event), "it was a CUevent that is gone");
  EXPECT_DEATH(cuEventDestroy(event), "it was a CUevent that is gone");
  EXPECT_EQ(cuEventQuery(of_.event), CUDA_SUCCESS) << "another context's";
  EXPECT_DEATH(cuFuncGetName(&g_name, of_module), "cuFuncGetName takes a CUfunction");
  EXPECT_DEATH(cuFuncGetName(&g_name, of_kernel), "cuFuncGetName takes a CUfunction");
  EXPECT_DEATH(cuModuleUnload(loaded), "cuModuleUnload takes a CUmodule");
  EXPECT_DEATH(cuModuleGetFunction(&again, of_library, "handles_one"),
               "cuModuleGetFunction takes a CUmodule");
  EXPECT_EQ(Launch(of_.function), CUDA_SUCCESS) << "another context's";
  ASSERT_EQ(cuKernelGetFunction(&again, of_.kernel), CUDA_SUCCESS);
  EXPECT_EQ(Launch(again), CUDA_SUCCESS);
}

TEST_F(DriverHandlesTest, MemoryThatWasReleasedIsNoneAnyMore) {
  CUmemAllocationProp properties = DeviceMemory();
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_EQ(cuMemCreate(&handle, kChunk, &properties, 0), CUDA_SUCCESS);
  const Range range(kChunk);
  ASSERT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_DEATH(cuMemRelease(handle), "cuMemRelease takes a CUmemGenericAllocationHandle");
  EXPECT_DEATH(cuMemMap(range.start, kChunk, 0, handle, 0), "cuMemMap takes a CUmemGenericAllocationHandle");
  EXPECT_DEATH(cuMemRelease(0x1234), "cuMemRelease takes a CUmemGenericAllocationHandle");
}

}  // namespace
}  // namespace simcuda_test
