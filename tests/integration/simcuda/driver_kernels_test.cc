// The stand-in driver's modules, kernels and launches, and its copies and memsets.
#include <cstring>
#include <numeric>

#include "tests/integration/simcuda/driver_test_base.h"

namespace simcuda_test {
namespace {

// Adds `b` to n floats at `a`; the layout has a hole between b and n.
void AddKernel(const simcuda_launch* launch, void** parameters) {
  float* a = *static_cast<float**>(parameters[0]);
  const float b = *static_cast<float*>(parameters[1]);
  const uint64_t n = *static_cast<uint64_t*>(parameters[2]);
  for (uint64_t i = 0; i < n; ++i) a[i] += b;
}

class DriverKernelsTest : public DriverTest {
 protected:
  static void SetUpTestSuite() {
    DriverTest::SetUpTestSuite();
    const simcuda_parameter layout[] = {{0, 8}, {8, 4}, {16, 8}};
    const simcuda_kernel kernel = {"test_add", &AddKernel, nullptr, layout, 3};
    ASSERT_EQ(simcuda_register_kernel(&kernel, nullptr), 0);
  }
  CUdeviceptr Zeros(size_t floats) {
    CUdeviceptr pointer = 0;
    EXPECT_EQ(cuMemAlloc(&pointer, floats * 4), CUDA_SUCCESS);
    EXPECT_EQ(cuMemsetD32(pointer, 0, floats), CUDA_SUCCESS);
    return pointer;
  }
  static float First(CUdeviceptr pointer) {
    float value = -1;
    EXPECT_EQ(cuMemcpyDtoH(&value, pointer, 4), CUDA_SUCCESS);
    return value;
  }
};

TEST_F(DriverKernelsTest, ModuleAndLibraryFindRegisteredKernels) {
  CUmodule module = nullptr;
  ASSERT_EQ(cuModuleLoadData(&module, SIMCUDA_IMAGE_MAGIC "\ntest_add\nnobody_registered\n"), CUDA_SUCCESS);
  CUfunction function = nullptr;
  ASSERT_EQ(cuModuleGetFunction(&function, module, "test_add"), CUDA_SUCCESS);
  EXPECT_EQ(cuModuleGetFunction(&function, module, "not_in_image"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(cuModuleGetFunction(&function, module, "nobody_registered"), CUDA_ERROR_NOT_FOUND);
  ASSERT_EQ(cuModuleGetFunction(&function, module, "test_add"), CUDA_SUCCESS);
  const char* name = nullptr;
  ASSERT_EQ(cuFuncGetName(&name, function), CUDA_SUCCESS);
  EXPECT_STREQ(name, "test_add");
  CUmodule owner = nullptr;
  ASSERT_EQ(cuFuncGetModule(&owner, function), CUDA_SUCCESS);
  EXPECT_EQ(owner, module);

  CUlibrary library = nullptr;
  ASSERT_EQ(
      cuLibraryLoadData(&library, SIMCUDA_IMAGE_MAGIC "\ntest_add", nullptr, nullptr, 0, nullptr, nullptr, 0),
      CUDA_SUCCESS);
  CUkernel kernel = nullptr;
  ASSERT_EQ(cuLibraryGetKernel(&kernel, library, "test_add"), CUDA_SUCCESS);
  CUfunction of_kernel = nullptr;
  ASSERT_EQ(cuKernelGetFunction(&of_kernel, kernel), CUDA_SUCCESS);
  size_t offset = 0, size = 0;
  ASSERT_EQ(cuKernelGetParamInfo(kernel, 2, &offset, &size), CUDA_SUCCESS);
  EXPECT_EQ(offset, 16u);
  EXPECT_EQ(size, 8u);

  ASSERT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
  const HandlesAreAnswered answered;
  EXPECT_EQ(cuFuncGetName(&name, function), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
  ASSERT_EQ(cuLibraryUnload(library), CUDA_SUCCESS);
  EXPECT_EQ(cuModuleLoadData(&module, "no image"), CUDA_ERROR_INVALID_IMAGE);
}

CUmodule ModuleOfPtx(const std::string& entry) {
  CUmodule module = nullptr;
  const std::string text =
      "// by a compiler\n.version 8.0\n.target sm_90\n.address_size 64\n.visible .entry  " + entry +
      "\n{ ret; }\n";
  EXPECT_EQ(cuModuleLoadData(&module, text.c_str()), CUDA_SUCCESS);
  return module;
}

TEST_F(DriverKernelsTest, PtxEntriesAreBoundByNameAndLayout) {
  CUfunction function = nullptr;
  const CUmodule same = ModuleOfPtx(
      "test_add(\n\t.param .u64 .ptr .align 1 test_add_param_0,\n\t.param .f32 p1,\n\t.param .s64 p2\n)");
  EXPECT_EQ(cuModuleGetFunction(&function, same, "test_add"), CUDA_SUCCESS);
  const CUmodule shorter = ModuleOfPtx("test_add(.param .u64 p0)");
  EXPECT_EQ(cuModuleGetFunction(&function, shorter, "test_add"), CUDA_ERROR_NOT_FOUND);
  ASSERT_EQ(cuModuleUnload(same), CUDA_SUCCESS);
  ASSERT_EQ(cuModuleUnload(shorter), CUDA_SUCCESS);
}

TEST_F(DriverKernelsTest, AHostFormTakesTheLayoutOfTheImage) {
  simcuda_kernel kernel = {"test_of_image",
                           [](const simcuda_launch* launch, void** parameters) {
                             EXPECT_EQ(launch->buffer_bytes, 30u);
                             uint64_t* const out = *static_cast<uint64_t**>(parameters[1]);
                             std::memcpy(out, parameters[2], 12);
                           },
                           nullptr, nullptr, SIMCUDA_LAYOUT_OF_IMAGE};
  CUfunction function = nullptr;
  EXPECT_EQ(simcuda_register_kernel(&kernel, &function), CUDA_ERROR_INVALID_VALUE);  // of which image?
  ASSERT_EQ(simcuda_register_kernel(&kernel, nullptr), 0);
  const CUmodule module = ModuleOfPtx(
      "test_of_image(.param .u8 p0, .param .u64 p1,\n .param .align 4 .b8 p2[12], .param .u16 p3)");
  ASSERT_EQ(cuModuleGetFunction(&function, module, "test_of_image"), CUDA_SUCCESS);
  const size_t offsets[] = {0, 8, 16, 28}, sizes[] = {1, 8, 12, 2};
  for (size_t i = 0; i < 4; ++i) {
    size_t offset = 0, size = 0;
    ASSERT_EQ(cuFuncGetParamInfo(function, i, &offset, &size), CUDA_SUCCESS);
    EXPECT_EQ(offset, offsets[i]);
    EXPECT_EQ(size, sizes[i]);
  }
  CUdeviceptr data = Zeros(4);
  char byte = 0;
  uint32_t three[] = {7, 8, 9};
  uint16_t word = 0;
  void* parameters[] = {&byte, &data, three, &word};
  ASSERT_EQ(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(*At<uint32_t>(data + 8), 9u);
  CUmodule unsaid = nullptr;
  ASSERT_EQ(cuModuleLoadData(&unsaid, SIMCUDA_IMAGE_MAGIC "\ntest_of_image"), CUDA_SUCCESS);
  EXPECT_EQ(cuModuleGetFunction(&function, unsaid, "test_of_image"), CUDA_ERROR_NOT_FOUND);
  ASSERT_EQ(cuModuleUnload(unsaid), CUDA_SUCCESS);
  ASSERT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
  ASSERT_EQ(cuMemFree(data), CUDA_SUCCESS);
}

TEST_F(DriverKernelsTest, LayoutIsEnumeratedUntilTheError) {
  CUmodule module = nullptr;
  ASSERT_EQ(cuModuleLoadData(&module, SIMCUDA_IMAGE_MAGIC "\ntest_add"), CUDA_SUCCESS);
  CUfunction function = nullptr;
  ASSERT_EQ(cuModuleGetFunction(&function, module, "test_add"), CUDA_SUCCESS);
  size_t offset = 0, size = 0, count = 0;
  while (cuFuncGetParamInfo(function, count, &offset, &size) == CUDA_SUCCESS) ++count;
  EXPECT_EQ(count, 3u);
  EXPECT_EQ(cuFuncGetParamInfo(function, 3, &offset, &size), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverKernelsTest, AllLaunchFormsRunTheSameKernel) {
  CUlibrary library = nullptr;
  ASSERT_EQ(
      cuLibraryLoadData(&library, SIMCUDA_IMAGE_MAGIC "\ntest_add", nullptr, nullptr, 0, nullptr, nullptr, 0),
      CUDA_SUCCESS);
  CUkernel kernel = nullptr;
  CUfunction function = nullptr;
  ASSERT_EQ(cuLibraryGetKernel(&kernel, library, "test_add"), CUDA_SUCCESS);
  ASSERT_EQ(cuKernelGetFunction(&function, kernel), CUDA_SUCCESS);
  CUdeviceptr data = Zeros(100);
  float b = 1;
  uint64_t n = 100;
  void* parameters[] = {&data, &b, &n};
  ASSERT_EQ(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(First(data), 1);
  // A CUkernel in place of the CUfunction.
  ASSERT_EQ(
      cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr),
      CUDA_SUCCESS);
  EXPECT_EQ(First(data), 2);
  CUlaunchConfig config = {};
  config.gridDimX = config.gridDimY = config.gridDimZ = config.blockDimX = config.blockDimY =
      config.blockDimZ = 1;
  ASSERT_EQ(cuLaunchKernelEx(&config, function, parameters, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(First(data), 3);
  char buffer[24] = {};
  std::memcpy(buffer, &data, 8);
  std::memcpy(buffer + 8, &b, 4);
  std::memcpy(buffer + 16, &n, 8);
  size_t bytes = sizeof(buffer);
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  ASSERT_EQ(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra), CUDA_SUCCESS);
  EXPECT_EQ(First(data), 4);
  EXPECT_EQ(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, extra),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuLaunchKernel(function, 0, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuLaunchKernel(function, 1, 1, 1, 2048, 1, 1, 0, nullptr, parameters, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  bytes = 0;
  EXPECT_EQ(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuMemFree(data), CUDA_SUCCESS);
}

// NCCL declares 4,096 bytes and gives those that it has filled.
TEST_F(DriverKernelsTest, ABufferMayBeShorterThanTheParameters) {
  const simcuda_parameter layout[] = {{0, 4096}};
  static std::vector<uint64_t> seen;
  const simcuda_kernel kernel = {"look_at_the_ends",
                                 [](const simcuda_launch*, void** parameters) {
                                   const auto* const words = static_cast<const uint64_t*>(parameters[0]);
                                   seen = {words[0], words[1], words[2]};
                                 },
                                 nullptr, layout, 1};
  CUfunction function = nullptr;
  ASSERT_EQ(simcuda_register_kernel(&kernel, &function), 0);
  const uint64_t buffer[2] = {5, 7};
  size_t bytes = sizeof(buffer);
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<uint64_t*>(buffer), CU_LAUNCH_PARAM_BUFFER_SIZE,
                   &bytes, CU_LAUNCH_PARAM_END};
  ASSERT_EQ(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[0], 5u);
  EXPECT_EQ(seen[1], 7u);
  EXPECT_NE(seen[2], 0u) << "nothing is promised of the rest";
}

TEST_F(DriverKernelsTest, ParametersAreCopiedAtTheLaunch) {
  const simcuda_parameter layout[] = {{0, 8}};
  static std::vector<uint64_t> seen;
  seen.clear();
  const simcuda_kernel kernel = {"remember",
                                 [](const simcuda_launch*, void** parameters) {
                                   seen.push_back(*static_cast<uint64_t*>(parameters[0]));
                                 },
                                 nullptr, layout, 1};
  CUfunction function = nullptr;
  ASSERT_EQ(simcuda_register_kernel(&kernel, &function), 0);
  simcuda_hold_streams(1);
  for (uint64_t value = 0; value < 10; ++value) {
    uint64_t changing = value;
    void* parameters[] = {&changing};
    ASSERT_EQ(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr), CUDA_SUCCESS);
    changing = 999;
  }
  simcuda_hold_streams(0);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  std::vector<uint64_t> expected(10);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(seen, expected);
}

TEST_F(DriverKernelsTest, KernelSeesItsLaunch) {
  static simcuda_launch seen;
  static int marker;
  const simcuda_kernel kernel = {"look", [](const simcuda_launch* launch, void**) { seen = *launch; },
                                 &marker, nullptr, 0};
  CUfunction function = nullptr;
  ASSERT_EQ(simcuda_register_kernel(&kernel, &function), 0);
  TestStream stream(CU_STREAM_NON_BLOCKING);
  ASSERT_EQ(cuLaunchKernel(function, 2, 3, 4, 5, 6, 7, 1000, stream, nullptr, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(seen.grid[0] * 100 + seen.grid[1] * 10 + seen.grid[2], 234u);
  EXPECT_EQ(seen.block[0] * 100 + seen.block[1] * 10 + seen.block[2], 567u);
  EXPECT_EQ(seen.shared_bytes, 1000u);
  EXPECT_EQ(seen.stream, stream.stream);
  EXPECT_EQ(seen.device, 0);
  EXPECT_EQ(seen.user, &marker);
  EXPECT_STREQ(seen.name, "look");
}

TEST_F(DriverKernelsTest, RegistrationRefusesBadLayouts) {
  const auto run = [](const simcuda_launch*, void**) {};
  const simcuda_parameter overlapping[] = {{0, 8}, {4, 8}};
  simcuda_kernel kernel = {"bad", run, nullptr, overlapping, 2};
  EXPECT_NE(simcuda_register_kernel(&kernel, nullptr), 0);
  const simcuda_parameter huge[] = {{0, 40000}};
  kernel = {"bad", run, nullptr, huge, 1};
  EXPECT_NE(simcuda_register_kernel(&kernel, nullptr), 0);
  kernel = {"", run, nullptr, nullptr, 0};
  EXPECT_NE(simcuda_register_kernel(&kernel, nullptr), 0);
}

TEST_F(DriverKernelsTest, FunctionsAnswerQuestions) {
  const Kernel kernel("asked", 0, [](uint64_t*) {});
  int value = 0;
  ASSERT_EQ(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel.function()),
            CUDA_SUCCESS);
  EXPECT_EQ(value, 1024);
  ASSERT_EQ(cuFuncSetAttribute(kernel.function(), CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000),
            CUDA_SUCCESS);
  ASSERT_EQ(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel.function()),
            CUDA_SUCCESS);
  EXPECT_EQ(value, 100000);
  ASSERT_EQ(cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, kernel.function(), 256, 0), CUDA_SUCCESS);
  EXPECT_EQ(value, 8);
}

TEST_F(DriverKernelsTest, CopiesGoEveryWay) {
  CUdeviceptr first = Zeros(kMiB / 4), second = Zeros(kMiB / 4);
  std::vector<uint32_t> out(kMiB / 4), back(kMiB / 4);
  std::iota(out.begin(), out.end(), 1u);
  ASSERT_EQ(cuMemcpyHtoD(first, out.data(), kMiB), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoD(second, first, kMiB), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpy(reinterpret_cast<CUdeviceptr>(back.data()), second, kMiB), CUDA_SUCCESS);
  EXPECT_EQ(back, out);
  const simcuda_stats stats = Stats();
  EXPECT_GE(stats.copied_bytes[SIMCUDA_HTOD], kMiB);
  EXPECT_GE(stats.copied_bytes[SIMCUDA_DTOD], kMiB);
  EXPECT_GE(stats.copied_bytes[SIMCUDA_DTOH], kMiB);
  ASSERT_EQ(cuMemFree(first), CUDA_SUCCESS);
  ASSERT_EQ(cuMemFree(second), CUDA_SUCCESS);
}

TEST_F(DriverKernelsTest, TwoDimensionalCopyKeepsToItsRows) {
  CUdeviceptr device = 0;
  size_t pitch = 0;
  ASSERT_EQ(cuMemAllocPitch(&device, &pitch, 100, 4, 4), CUDA_SUCCESS);
  EXPECT_EQ(pitch % 512, 0u);
  ASSERT_EQ(cuMemsetD2D8(device, pitch, 9, pitch, 4), CUDA_SUCCESS);
  std::vector<char> rows(4 * 100);
  std::iota(rows.begin(), rows.end(), 0);
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = rows.data();
  copy.srcPitch = 100;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = device;
  copy.dstPitch = pitch;
  copy.WidthInBytes = 100;
  copy.Height = 4;
  ASSERT_EQ(cuMemcpy2D(&copy), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(At<char>(device + 3 * pitch), rows.data() + 300, 100), 0);
  EXPECT_EQ(At<char>(device + 2 * pitch)[100], 9);
  ASSERT_EQ(cuMemFree(device), CUDA_SUCCESS);
}

TEST_F(DriverKernelsTest, MemsetsFillElements) {
  CUdeviceptr device = Zeros(64);
  ASSERT_EQ(cuMemsetD16(device + 2, 0x1234, 3), CUDA_SUCCESS);
  ASSERT_EQ(cuMemsetD32(device + 100, 0xdeadbeef, 2), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(At<uint16_t>(device)[0], 0);
  EXPECT_EQ(At<uint16_t>(device)[1], 0x1234);
  EXPECT_EQ(At<uint16_t>(device)[3], 0x1234);
  EXPECT_EQ(At<uint16_t>(device)[4], 0);
  EXPECT_EQ(At<uint32_t>(device)[26], 0xdeadbeefu);
  EXPECT_EQ(At<uint32_t>(device)[27], 0u);
  EXPECT_EQ(cuMemsetD32(device + 2, 0, 1), CUDA_ERROR_INVALID_VALUE) << "alignment";
  ASSERT_EQ(cuMemFree(device), CUDA_SUCCESS);
}

TEST_F(DriverKernelsTest, PageableSourceMayChangeAfterTheCall) {
  CUdeviceptr device = Zeros(1024);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  TestStream stream(CU_STREAM_NON_BLOCKING);
  simcuda_hold_streams(1);
  std::vector<uint32_t> small(16, 5);
  ASSERT_EQ(cuMemcpyHtoDAsync(device, small.data(), 64, stream), CUDA_SUCCESS);
  std::fill(small.begin(), small.end(), 6);
  simcuda_hold_streams(0);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(*At<uint32_t>(device), 5u);
  ASSERT_EQ(cuMemFree(device), CUDA_SUCCESS);
}

TEST_F(DriverKernelsTest, PinnedCopyIsAsynchronous) {
  CUdeviceptr device = Zeros(1024);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  void* pinned = nullptr;
  ASSERT_EQ(cuMemAllocHost(&pinned, 4096), CUDA_SUCCESS);
  std::memset(pinned, 1, 4096);
  TestStream stream(CU_STREAM_NON_BLOCKING);
  simcuda_hold_streams(1);
  ASSERT_EQ(cuMemcpyHtoDAsync(device, pinned, 4096, stream), CUDA_SUCCESS);
  std::memset(pinned, 2, 4096);
  EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  simcuda_hold_streams(0);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(*At<char>(device), 2);
  ASSERT_EQ(cuMemFreeHost(pinned), CUDA_SUCCESS);
  ASSERT_EQ(cuMemFree(device), CUDA_SUCCESS);
}

}  // namespace
}  // namespace simcuda_test
