// Variables of modules and libraries: their own memory, copies into them, and kernels that read them.
#include <cstring>

#include "tests/integration/simcuda/driver_test_base.h"

namespace simcuda_test {
namespace {

constexpr const char* kImage = SIMCUDA_IMAGE_MAGIC "\nread_table\n.global table 64\n.global big 3145728\n";

// Reads the address in word 1 of the module's "table" and writes 7 there.
void ReadTable(const simcuda_launch* launch, void**) {
  size_t bytes = 0;
  const auto* table = static_cast<const uint64_t*>(simcuda_module_global(launch, "table", &bytes));
  if (table == nullptr || bytes != 64 || simcuda_module_global(launch, "absent", nullptr) != nullptr) {
    simcuda_set_device_error("the module's variable is not there");
    return;
  }
  *reinterpret_cast<int*>(table[1]) = 7;
}

class DriverGlobalsTest : public DriverTest {
 protected:
  void SetUp() override {
    static const bool registered = [] {
      const simcuda_kernel kernel = {"read_table", &ReadTable, nullptr, nullptr, 0};
      return simcuda_register_kernel(&kernel, nullptr) == 0;
    }();
    ASSERT_TRUE(registered);
  }
};

TEST_F(DriverGlobalsTest, KernelSeesWhatWasCopiedIntoTheVariable) {
  CUmodule module = nullptr;
  ASSERT_EQ(cuModuleLoadData(&module, kImage), CUDA_SUCCESS);
  CUdeviceptr table = 0;
  size_t bytes = 0;
  ASSERT_EQ(cuModuleGetGlobal(&table, &bytes, module, "table"), CUDA_SUCCESS);
  EXPECT_EQ(bytes, 64u);
  uint64_t words[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  ASSERT_EQ(cuMemcpyDtoH(words, table, sizeof(words)), CUDA_SUCCESS);
  EXPECT_EQ(words[0] | words[7], 0u);
  CUdeviceptr target = 0;
  ASSERT_EQ(cuMemAlloc(&target, 4096), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyHtoD(table + 8, &target, sizeof(target)), CUDA_SUCCESS);
  CUfunction function = nullptr;
  ASSERT_EQ(cuModuleGetFunction(&function, module, "read_table"), CUDA_SUCCESS);
  ASSERT_EQ(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(*At<int>(target), 7);
  EXPECT_EQ(cuMemFree(target), CUDA_SUCCESS);
  EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
  EXPECT_EQ(simcuda_is_device_address(table), 0);
}

TEST_F(DriverGlobalsTest, VariablesAreNotChargedAndNotForMemFree) {
  const uint64_t before = Stats().physical_bytes[0];
  CUmodule module = nullptr;
  ASSERT_EQ(cuModuleLoadData(&module, kImage), CUDA_SUCCESS);
  CUdeviceptr big = 0;
  size_t bytes = 0;
  ASSERT_EQ(cuModuleGetGlobal(&big, &bytes, module, "big"), CUDA_SUCCESS);
  EXPECT_EQ(bytes, 3145728u);
  EXPECT_EQ(Stats().physical_bytes[0], before);
  EXPECT_EQ(cuMemFree(big), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD8(big, 5, bytes), CUDA_SUCCESS);
  EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
  EXPECT_EQ(Stats().physical_bytes[0], before);
}

TEST_F(DriverGlobalsTest, LookUpsFailAsDocumented) {
  CUmodule module = nullptr;
  ASSERT_EQ(cuModuleLoadData(&module, kImage), CUDA_SUCCESS);
  CUdeviceptr pointer = 0;
  size_t bytes = 0;
  EXPECT_EQ(cuModuleGetGlobal(&pointer, &bytes, module, "absent"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(cuModuleGetGlobal(&pointer, &bytes, module, "read_table"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(cuModuleGetGlobal(&pointer, &bytes, module, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuModuleGetGlobal(&pointer, nullptr, module, "table"), CUDA_SUCCESS);
  EXPECT_EQ(cuModuleGetGlobal(nullptr, &bytes, module, "table"), CUDA_SUCCESS);
  unsigned int functions = 0;
  EXPECT_EQ(cuModuleGetFunctionCount(&functions, module), CUDA_SUCCESS);
  EXPECT_EQ(functions, 1u);
  EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
  const HandlesAreAnswered answered;
  EXPECT_EQ(cuModuleGetGlobal(&pointer, &bytes, module, "table"), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuModuleLoadData(&module, SIMCUDA_IMAGE_MAGIC "\n.global table\n"), CUDA_ERROR_INVALID_IMAGE);
}

TEST_F(DriverGlobalsTest, EachContextHasItsOwnOfALibrary) {
  CUlibrary library = nullptr;
  ASSERT_EQ(cuLibraryLoadData(&library, kImage, nullptr, nullptr, 0, nullptr, nullptr, 0), CUDA_SUCCESS);
  CUdeviceptr here = 0;
  CUdeviceptr again = 0;
  CUdeviceptr there = 0;
  ASSERT_EQ(cuLibraryGetGlobal(&here, nullptr, library, "table"), CUDA_SUCCESS);
  ASSERT_EQ(cuLibraryGetGlobal(&again, nullptr, library, "table"), CUDA_SUCCESS);
  CUcontext other = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&other, 1), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxPushCurrent(other), CUDA_SUCCESS);
  ASSERT_EQ(cuLibraryGetGlobal(&there, nullptr, library, "table"), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxPopCurrent(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(here, again);
  EXPECT_NE(here, there);
  int device = -1;
  EXPECT_EQ(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, there), CUDA_SUCCESS);
  EXPECT_EQ(device, 1);
  CUdeviceptr target = 0;
  ASSERT_EQ(cuMemAlloc(&target, 4096), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyHtoD(here + 8, &target, sizeof(target)), CUDA_SUCCESS);
  CUkernel kernel = nullptr;
  ASSERT_EQ(cuLibraryGetKernel(&kernel, library, "read_table"), CUDA_SUCCESS);
  ASSERT_EQ(
      cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
      CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(*At<int>(target), 7);
  EXPECT_EQ(cuMemFree(target), CUDA_SUCCESS);
  EXPECT_EQ(cuLibraryUnload(library), CUDA_SUCCESS);
}

}  // namespace
}  // namespace simcuda_test
