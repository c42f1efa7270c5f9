// Which addresses cuGetProcAddress hands out. The product knows a function by its address, never by its name: alone,
// each look-up must therefore give the very address that the exported symbol has; with LD_PRELOAD=libspillway.so, each
// function that must be followed must come from Spillway. Which of the two is asked is seen from the process.

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "tests/gpu/gpu.h"

namespace spillway::gpu {
namespace {

struct Row {
  const char* symbol;
  const char* name;
  int version;
  bool per_thread;
};

#define DEFAULT false
#define PER_THREAD true
#define DRIVER_FUNCTION(symbol, name, version, form) {#symbol, #name, version, form},
constexpr Row kRows[] = {
#include "allocator/driver/driver_functions.def"
};
#undef DRIVER_FUNCTION
#undef DEFAULT
#undef PER_THREAD

struct Wanted {
  const char* symbol;
  bool wrapped;
};
#define USED false
#define HOOK true
#define MUST true
#define DRIVER_SYMBOL(symbol, use) {#symbol, use},
constexpr Wanted kWanted[] = {
#include "allocator/driver/driver_symbols.def"
};
#undef DRIVER_SYMBOL
#undef USED
#undef HOOK
#undef MUST

bool IsWrapped(const char* symbol) {
  for (const Wanted& wanted : kWanted) {
    if (std::strcmp(wanted.symbol, symbol) == 0) return wanted.wrapped;
  }
  return false;
}

// The file of the library that the address lies in.
std::string LibraryOf(const void* address) {
  Dl_info info;
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "?";
  const char* const slash = std::strrchr(info.dli_fname, '/');
  return slash == nullptr ? info.dli_fname : slash + 1;
}

class LookUpTest : public testing::Test {
 protected:
  LookUpTest() {
    Dl_info info;
    preloaded_ = dladdr(gpu_.Symbol("cuLaunchKernel"), &info) != 0 &&
                 std::strstr(info.dli_fname, "libspillway") != nullptr;
    get_ = reinterpret_cast<decltype(&::cuGetProcAddress_v2)>(gpu_.Symbol("cuGetProcAddress_v2"));
    (void)gpu_.driver().cuDriverGetVersion(&driver_version_);
  }

  // As a runtime asks; null when the driver does not have the function.
  void* LookUp(const Row& row) const {
    void* found = nullptr;
    CUdriverProcAddressQueryResult why = CU_GET_PROC_ADDRESS_SUCCESS;
    const cuuint64_t flags =
        row.per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    return get_(row.name, &found, row.version, flags, &why) == CUDA_SUCCESS ? found : nullptr;
  }

  // Rows that this driver answers at all.
  template <typename Visit>
  int ForEachFunction(Visit visit) const {
    int functions = 0;
    for (const Row& row : kRows) {
      if (row.version == 0 || row.version > driver_version_) continue;
      void* const found = LookUp(row);
      if (found == nullptr) continue;
      ++functions;
      visit(row, found);
    }
    return functions;
  }

  const Gpu& gpu_ = Gpu::Get();
  decltype(&::cuGetProcAddress_v2) get_ = nullptr;
  bool preloaded_ = false;
  int driver_version_ = 0;
};

TEST_F(LookUpTest, AloneALookUpGivesTheExportedSymbol) {
  if (preloaded_) GTEST_SKIP() << "loaded with Spillway";
  int other = 0;
  const int functions = ForEachFunction([&](const Row& row, void* found) {
    void* const exported = gpu_.Symbol(row.symbol);
    if (exported == found) return;
    ++other;
    // Only a difference in what must be followed does harm.
    EXPECT_FALSE(IsWrapped(row.symbol)) << row.name << " of version " << row.version << ": exported as "
                                        << row.symbol << " at " << exported << ", looked up " << found;
  });
  EXPECT_GT(functions, 300);
  std::printf("measured: %d functions looked up, %d of them at another address than the symbol\n", functions,
              other);
}

TEST_F(LookUpTest, WithSpillwayWhatMustBeFollowedComesFromIt) {
  if (!preloaded_) GTEST_SKIP() << "loaded without Spillway";
  int wrapped = 0;
  ForEachFunction([&](const Row& row, void* found) {
    if (!IsWrapped(row.symbol)) return;
    ++wrapped;
    EXPECT_EQ(LibraryOf(found).rfind("libspillway", 0), 0u)
        << row.name << " of version " << row.version << (row.per_thread ? ", per thread," : "") << " is in "
        << LibraryOf(found);
  });
  EXPECT_GT(wrapped, 100);
  std::printf("measured: %d functions looked up through Spillway\n", wrapped);
}

TEST_F(LookUpTest, KernelsRunAndAreRightEitherWay) {
  const CUstream stream = gpu_.NewStream();
  CUdeviceptr block = 0;
  CUdeviceptr counter = 0;
  ASSERT_EQ(gpu_.mem_alloc(&block, 1 << 20), CUDA_SUCCESS);
  ASSERT_EQ(gpu_.mem_alloc(&counter, 4), CUDA_SUCCESS);
  uint32_t count = 0;
  ASSERT_EQ(gpu_.driver().cuMemcpyHtoDAsync_v2(counter, &count, 4, stream), CUDA_SUCCESS);
  gpu_.Fill(stream, block, 1 << 20, 3);
  gpu_.Compare(stream, block, 1 << 20, 3, counter);
  gpu_.Compare(stream, block, 1 << 20, 4, counter);
  ASSERT_EQ(gpu_.driver().cuMemcpyDtoHAsync_v2(&count, counter, 4, stream), CUDA_SUCCESS);
  ASSERT_EQ(gpu_.driver().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(count, (1u << 20) / 4);
  EXPECT_EQ(gpu_.mem_free(block), CUDA_SUCCESS);
  EXPECT_EQ(gpu_.mem_free(counter), CUDA_SUCCESS);
}

}  // namespace
}  // namespace spillway::gpu
