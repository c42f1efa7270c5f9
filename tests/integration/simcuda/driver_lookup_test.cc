// cuGetProcAddress of the stand-in driver: one name has several ABIs, and the version asked for decides.
#include <dlfcn.h>

#include "tests/integration/simcuda/driver_test_base.h"

namespace simcuda_test {
namespace {

class DriverLookUpTest : public DriverTest {
 protected:
  static void* Find(const char* name, int version, cuuint64_t flags = 0) {
    void* address = nullptr;
    CUdriverProcAddressQueryResult status;
    EXPECT_EQ(cuGetProcAddress(name, &address, version, flags, &status), CUDA_SUCCESS);
    EXPECT_EQ(status == CU_GET_PROC_ADDRESS_SUCCESS, address != nullptr);
    return address;
  }
  // The entry by its exported symbol.
  static void* Symbol(const char* symbol) {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void* address = dlsym(driver, symbol);
    EXPECT_NE(address, nullptr) << symbol;
    dlclose(driver);
    return address;
  }
};

TEST_F(DriverLookUpTest, VersionDecidesBetweenAbis) {
  EXPECT_EQ(Find("cuCtxSynchronize", 2000), Symbol("cuCtxSynchronize"));
  EXPECT_EQ(Find("cuCtxSynchronize", 12080), Symbol("cuCtxSynchronize"));
  EXPECT_EQ(Find("cuCtxSynchronize", 13000), Symbol("cuCtxSynchronize_v2"));
  EXPECT_EQ(Find("cuMemAlloc", 2000), Symbol("cuMemAlloc"));
  EXPECT_EQ(Find("cuMemAlloc", 3020), Symbol("cuMemAlloc_v2"));
  EXPECT_EQ(Find("cuMemcpyBatchAsync", 12080), Symbol("cuMemcpyBatchAsync"));
  EXPECT_EQ(Find("cuMemcpyBatchAsync", 13000), Symbol("cuMemcpyBatchAsync_v2"));
  EXPECT_EQ(Find("cuGetProcAddress", 11030), Symbol("cuGetProcAddress"));
  EXPECT_EQ(Find("cuGetProcAddress", 12000), Symbol("cuGetProcAddress_v2"));
}

TEST_F(DriverLookUpTest, PerThreadFormsAreSeparate) {
  EXPECT_EQ(Find("cuLaunchKernel", 7000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM),
            Symbol("cuLaunchKernel_ptsz"));
  EXPECT_EQ(Find("cuLaunchKernel", 7000), Symbol("cuLaunchKernel"));
  EXPECT_EQ(Find("cuLaunchKernel", 4000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM),
            Symbol("cuLaunchKernel"))
      << "older than the per-thread form";
  EXPECT_EQ(Find("cuMemcpyHtoD", 7000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM),
            Symbol("cuMemcpyHtoD_v2_ptds"));
  EXPECT_EQ(Find("cuMemFree", 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM), Symbol("cuMemFree_v2"))
      << "has no per-thread form";
}

TEST_F(DriverLookUpTest, UnknownAndTooOldAreToldApart) {
  void* address = this;
  CUdriverProcAddressQueryResult status;
  EXPECT_EQ(cuGetProcAddress("cuNoSuchFunction", &address, 13000, 0, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(address, nullptr);
  EXPECT_EQ(cuGetProcAddress("cuNoSuchFunction", &address, 13000, 0, nullptr), CUDA_SUCCESS);
  address = this;
  EXPECT_EQ(cuGetProcAddress("cuLibraryLoadData", &address, 11000, 0, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  EXPECT_EQ(address, nullptr);
  EXPECT_EQ(cuGetProcAddress("", &address, 13000, 0, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(cuGetProcAddress(nullptr, &address, 13000, 0, &status), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGetProcAddress("cuInit", nullptr, 13000, 0, &status), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGetProcAddress("cuInit", &address, 13000, 4, &status), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverLookUpTest, TheFirstFormFailsAndLeavesThePointer) {
  using FirstForm = CUresult (*)(const char*, void**, int, cuuint64_t);
  const auto find = reinterpret_cast<FirstForm>(Symbol("cuGetProcAddress"));
  void* address = this;
  EXPECT_EQ(find("cuNoSuchFunction", &address, 13000, 0), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(find("cuLibraryLoadData", &address, 11000, 0), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(find("cuInit", &address, 13000, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(address, static_cast<void*>(this));
  EXPECT_EQ(find("cuInit", &address, 13000, 0), CUDA_SUCCESS);
  EXPECT_EQ(address, Symbol("cuInit"));
}

TEST_F(DriverLookUpTest, UnimplementedFunctionsSaySo) {
  void* address = Find("cuMulticastUnbind", 13000);
  ASSERT_NE(address, nullptr);
  const auto unbind = reinterpret_cast<decltype(&cuMulticastUnbind)>(address);
  EXPECT_EQ(unbind(0, 0, 0, 0), CUDA_ERROR_NOT_SUPPORTED);
  const void* table = this;
  CUuuid id = {};
  EXPECT_NE(cuGetExportTable(&table, &id), CUDA_SUCCESS);
  EXPECT_EQ(table, nullptr);
}

}  // namespace
}  // namespace simcuda_test
