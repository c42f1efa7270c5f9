// EscapedMemoryTest: the wrappers over the stand-in driver and the real memory core, with blocks of twice the
// budget, so that what a kernel reaches by an address that no launch names has been evicted by then. The
// stand-in counts each access to an evicted block. Where the machine has memory protection keys, the host and so the
// wrappers cannot read device memory, as on hardware.

#ifndef SPILLWAY_TESTS_INTEGRATION_HOOKS_ESCAPED_MEMORY_FIXTURE_H_
#define SPILLWAY_TESTS_INTEGRATION_HOOKS_ESCAPED_MEMORY_FIXTURE_H_

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "integration/hooks/hook_table.h"
#include "integration/hooks/launch_gate.h"
#include "integration/simcuda/driver/simcuda.h"
#include "tests/allocator/core_fixture.h"

namespace spillway::integration {

using allocator::CoreDevice;
using allocator::PinReason;

inline constexpr uint64_t kBlock = 512 << 10;  // 7 of them fit the budget of the fixture
inline constexpr int kOthers = 14;

inline void* Symbol(const std::string& name) {
  static void* const library = dlopen(SPILLWAY_SIMCUDA_DRIVER, RTLD_NOW | RTLD_NOLOAD);
  return library == nullptr ? nullptr : dlsym(library, name.c_str());
}

// The sum of the first words of the blocks that `words` addresses at `table` lead to, into *out.
inline void SumTable(const uint64_t* table, uint64_t words, uint64_t* out) {
  *out = 0;
  for (uint64_t i = 0; i < words; ++i) *out += *reinterpret_cast<const volatile uint32_t*>(table[i]);
}

enum class Way { kHooked, kAround };

class EscapedMemoryTest : public testing::Test {
 protected:
  // What a test puts in the driver's place before the hooks are installed.
  using Replaced = std::map<std::string, void*>;
  explicit EscapedMemoryTest(Replaced replaced = {})
      : device_(ClosedToTheHost()), replaced_(std::move(replaced)) {
    HookReport report = InstallHooks([this](const char* name) { return RealOf(name); },
                                     [this](const char* name, void* wrapper) {
                                       wrappers_[name] = wrapper;
                                       return 0;
                                     });
    EXPECT_TRUE(report.missing.empty());
    context_.addresses = &device_.addresses();
    AttachDevice(&context_, 0, &device_.residency(), CoreDevice::Context());
    PublishHookContext(&context_);
    simcuda_.set("MODE", "report");
    simcuda_.reset();
    for (int i = 0; i < kOthers; ++i) others_.push_back(device_.MustAllocate(kBlock));
    EXPECT_EQ(Hooked<Row::cuMemAlloc_v2>()(&external_, 4096), CUDA_SUCCESS);
    EXPECT_EQ(Hooked<Row::cuMemAlloc_v2>()(&out_, 64), CUDA_SUCCESS);
  }
  ~EscapedMemoryTest() override {
    device_.Synchronize();
    Hooked<Row::cuMemFree_v2>()(external_);
    Hooked<Row::cuMemFree_v2>()(out_);
    PublishHookContext(nullptr);
    delete GetHookState();
    SetHookState(nullptr);
    simcuda_.set("MODE", "strict");
  }

  // The defaults, for a driver that is not initialized yet.
  static allocator::CoreSetup ClosedToTheHost() {
    setenv("SIMCUDA_PROTECTION_KEYS", "try", 1);
    return {};
  }
  void* RealOf(const std::string& name) const {
    const auto found = replaced_.find(name);
    return found == replaced_.end() ? Symbol(name) : found->second;
  }

  template <Row R>
  typename RowTraits<R>::Function Hooked(Way way = Way::kHooked) const {
    const char* const name = RowTraits<R>::kInfo.symbol;
    return reinterpret_cast<typename RowTraits<R>::Function>(way == Way::kHooked ? wrappers_.at(name)
                                                                                 : Symbol(name));
  }

  // A block full of `value`.
  CUdeviceptr Target(uint32_t value) {
    const CUdeviceptr block = device_.MustAllocate(kBlock);
    EXPECT_EQ(Hooked<Row::cuMemsetD32Async>()(block, value, kBlock / 4, nullptr), CUDA_SUCCESS);
    return block;
  }
  // Other blocks use twice the budget.
  void Press() {
    for (const CUdeviceptr other : others_) {
      EXPECT_EQ(Hooked<Row::cuMemsetD8Async>()(other, 1, kBlock, nullptr), CUDA_SUCCESS);
    }
    device_.Synchronize();
  }
  // Registers a kernel with parameters of these sizes, each at its own alignment.
  static void Register(const std::string& name, simcuda_kernel_function run,
                       const std::vector<size_t>& sizes) {
    std::vector<simcuda_parameter> parameters;
    size_t at = 0;
    for (const size_t size : sizes) {
      const size_t alignment = size >= 128 ? 64 : 8;
      at = (at + alignment - 1) / alignment * alignment;
      parameters.push_back({at, size});
      at += size;
    }
    const simcuda_kernel kernel = {name.c_str(), run, nullptr, parameters.data(), parameters.size()};
    reinterpret_cast<decltype(&simcuda_register_kernel)>(Symbol("simcuda_register_kernel"))(&kernel, nullptr);
  }
  static std::string ImageOf(const std::string& name) { return SIMCUDA_IMAGE_MAGIC "\n" + name + "\n"; }
  // The function of a module that the job loads for it.
  CUfunction Kernel(const std::string& name, simcuda_kernel_function run, const std::vector<size_t>& sizes) {
    CUfunction& function = functions_[name];
    if (function != nullptr) return function;
    Register(name, run, sizes);
    CUmodule module = nullptr;
    EXPECT_EQ(Hooked<Row::cuModuleLoadData>()(&module, ImageOf(name).c_str()), CUDA_SUCCESS);
    EXPECT_EQ(Hooked<Row::cuModuleGetFunction>()(&function, module, name.c_str()), CUDA_SUCCESS);
    return function;
  }
  CUresult Launch(CUfunction function, std::vector<void*> params, CUstream stream = nullptr) {
    return Hooked<Row::cuLaunchKernel>()(function, 1, 1, 1, 1, 1, 1, 0, stream, params.data(), nullptr);
  }
  // Runs a kernel that follows `words` addresses in the table; what it has summed.
  uint64_t SumOf(CUdeviceptr table, uint64_t words) {
    const CUfunction kernel =
        Kernel("sum_table",
               [](const simcuda_launch*, void** params) {
                 SumTable(*static_cast<uint64_t**>(params[0]), *static_cast<uint64_t*>(params[1]),
                          *static_cast<uint64_t**>(params[2]));
               },
               {8, 8, 8});
    EXPECT_EQ(Launch(kernel, {&table, &words, &out_}), CUDA_SUCCESS);
    return Result();
  }
  uint64_t Result() {
    device_.Synchronize();
    return Fetched<uint64_t>(out_);
  }
  // What lies at an address of the device.
  template <typename T>
  static T Fetched(CUdeviceptr address) {
    T value = 0;
    EXPECT_EQ(reinterpret_cast<decltype(&::cuMemcpyDtoH_v2)>(Symbol("cuMemcpyDtoH_v2"))(&value, address,
                                                                                        sizeof(value)),
              CUDA_SUCCESS);
    return value;
  }
  void Upload(CUdeviceptr to, const std::vector<uint64_t>& words, Way way = Way::kHooked) {
    EXPECT_EQ(Hooked<Row::cuMemcpyHtoDAsync_v2>(way)(to, words.data(), words.size() * 8, nullptr),
              CUDA_SUCCESS);
  }
  uint64_t PinnedFor(PinReason reason) {
    return device_->Stats().pinned_bytes_by_reason[static_cast<size_t>(reason)];
  }
  uint64_t Missed() { return simcuda_.missed(); }
  // With the hooks nothing is missed; without them the stand-in catches the same.
  void ExpectMisses(Way way) {
    if (way == Way::kHooked) {
      EXPECT_EQ(Missed(), 0u);
    } else {
      EXPECT_GT(Missed(), 0u) << "the block was not evicted: this test shows nothing";
    }
    simcuda_.reset();
  }

  struct Simcuda {
    void set(const char* name, const char* value) {
      reinterpret_cast<decltype(&simcuda_set)>(Symbol("simcuda_set"))(name, value);
    }
    uint64_t missed() {
      return reinterpret_cast<decltype(&simcuda_missed_accesses)>(Symbol("simcuda_missed_accesses"))();
    }
    void reset() { reinterpret_cast<decltype(&simcuda_reset_stats)>(Symbol("simcuda_reset_stats"))(); }
  };

  CoreDevice device_;
  const Replaced replaced_;
  HookContext context_;
  std::map<std::string, void*> wrappers_;
  std::map<std::string, CUfunction> functions_;
  Simcuda simcuda_;
  std::vector<CUdeviceptr> others_;
  CUdeviceptr external_ = 0;  // 4096 bytes that are not ours, as PyTorch's small blocks are
  CUdeviceptr out_ = 0;
};

}  // namespace spillway::integration

#endif  // SPILLWAY_TESTS_INTEGRATION_HOOKS_ESCAPED_MEMORY_FIXTURE_H_
