// Calls of the stand-in driver that wait for the GPU as a real driver's do, and answers whose width drivers choose.
#include <atomic>
#include <cstring>

#include "tests/integration/simcuda/driver_test_base.h"
#include "tests/integration/simcuda/driver_waiting.h"

namespace simcuda_test {
namespace {

class DriverWaitsTest : public DriverTest {
 protected:
  ~DriverWaitsTest() override {
    EXPECT_EQ(simcuda_set("UNREGISTER", "wait"), 0);
    EXPECT_EQ(simcuda_set("MODULE_LOAD", "pass"), 0);
    EXPECT_EQ(simcuda_set("BOOLEAN_BYTES", "1"), 0);
  }

  // Whether `call` returns only after a kernel that runs when it begins. With "pass" the kernel waits for the call.
  template <typename F>
  bool Waits(const std::string& name, bool passes, F call) {
    static int number = 0;
    std::atomic<bool> begun{false}, ended{false};
    HostCall host;
    const Kernel busy(name + std::to_string(++number), 0, [&](uint64_t*) {
      begun = true;
      begun.notify_one();
      passes ? host.UntilItReturns() : host.UntilItWaits();
      ended = true;
    });
    const TestStream stream(CU_STREAM_NON_BLOCKING);
    EXPECT_EQ(busy.Launch(stream, {}), CUDA_SUCCESS);
    begun.wait(false);
    bool waited = false;
    host.Run([&] {
      call();
      waited = ended;
    });
    EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
    return waited;
  }

  bool UnregistrationWaits(bool passes) {
    std::vector<char> memory(1 << 16);
    EXPECT_EQ(cuMemHostRegister(memory.data(), memory.size(), 0), CUDA_SUCCESS);
    return Waits("an_unregistration_", passes,
                 [&] { EXPECT_EQ(cuMemHostUnregister(memory.data()), CUDA_SUCCESS); });
  }

  bool LoadWaits(bool passes) {
    CUmodule module = nullptr;
    const bool waited = Waits("a_load_", passes, [&] {
      EXPECT_EQ(cuModuleLoadData(&module, SIMCUDA_IMAGE_MAGIC "\n"), CUDA_SUCCESS);
    });
    EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
    CUlibrary library = nullptr;
    EXPECT_EQ(Waits("a_library_", passes,
                    [&] {
                      EXPECT_EQ(cuLibraryLoadData(&library, SIMCUDA_IMAGE_MAGIC "\n", nullptr, nullptr, 0,
                                                  nullptr, nullptr, 0),
                                CUDA_SUCCESS);
                    }),
              waited);
    EXPECT_EQ(cuLibraryUnload(library), CUDA_SUCCESS);
    return waited;
  }

  static uint32_t Ask(CUdeviceptr pointer, CUpointer_attribute attribute) {
    uint32_t answer = 0xA5A5A5A5, again = 0xA5A5A5A5;
    void* data = &again;
    EXPECT_EQ(cuPointerGetAttribute(&answer, attribute, pointer), CUDA_SUCCESS);
    EXPECT_EQ(cuPointerGetAttributes(1, &attribute, &data, pointer), CUDA_SUCCESS);
    EXPECT_EQ(answer, again) << attribute;
    return answer;
  }
};

TEST_F(DriverWaitsTest, AnUnregistrationWaitsForTheContext) {
  EXPECT_TRUE(UnregistrationWaits(false));
  ASSERT_EQ(simcuda_set("UNREGISTER", "pass"), 0);
  EXPECT_FALSE(UnregistrationWaits(true));
  EXPECT_NE(simcuda_set("UNREGISTER", "perhaps"), 0);
}

TEST_F(DriverWaitsTest, LoadingCodeWaitsForTheGpuWhereThatIsSet) {
  EXPECT_FALSE(LoadWaits(true));
  ASSERT_EQ(simcuda_set("MODULE_LOAD", "wait"), 0);
  EXPECT_TRUE(LoadWaits(false));
}

TEST_F(DriverWaitsTest, CodeThatAStreamLoadsDoesNotWaitForItself) {
  ASSERT_EQ(simcuda_set("MODULE_LOAD", "wait"), 0);
  CUmodule module = nullptr;
  const Kernel loads("a_kernel_that_loads", 0,
                     [&](uint64_t*) { (void)cuModuleLoadData(&module, SIMCUDA_IMAGE_MAGIC "\n"); });
  const TestStream stream(CU_STREAM_NON_BLOCKING);
  EXPECT_EQ(loads.Launch(stream, {}), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  if (module == nullptr) return;
  EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
}

TEST_F(DriverWaitsTest, ABooleanAttributeHasTheWidthThatIsSet) {
  CUdeviceptr pointer = 0;
  ASSERT_EQ(cuMemAlloc(&pointer, 1000), CUDA_SUCCESS);
  EXPECT_EQ(Ask(pointer, CU_POINTER_ATTRIBUTE_MAPPED), 0xA5A5A501u);
  EXPECT_EQ(Ask(pointer, CU_POINTER_ATTRIBUTE_IS_MANAGED), 0xA5A5A500u);
  ASSERT_EQ(simcuda_set("BOOLEAN_BYTES", "4"), 0);
  EXPECT_EQ(Ask(pointer, CU_POINTER_ATTRIBUTE_MAPPED), 1u);
  for (const CUpointer_attribute attribute :
       {CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE}) {
    EXPECT_EQ(Ask(pointer, attribute), 0u) << attribute;
  }
  EXPECT_NE(simcuda_set("BOOLEAN_BYTES", "2"), 0);
  ASSERT_EQ(cuMemFree(pointer), CUDA_SUCCESS);
}

}  // namespace
}  // namespace simcuda_test
