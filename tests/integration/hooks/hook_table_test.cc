// Each HOOK and MUST row of driver_symbols.def has a wrapper that passes arguments and result on unchanged,
// before there is a context and with one.

#include <set>
#include <utility>

#include "integration/hooks/hook_table.h"
#include "tests/integration/hooks/hook_fixture.h"

namespace spillway::integration {
namespace {

// An argument that names no block: distinct numbers, null pointers.
template <typename T>
T MakeArgument(int place) {
  T value{};
  if constexpr (std::is_integral_v<T>) value = static_cast<T>(place + 3);
  return value;
}

// Calls the wrapper of a row and compares what reached the driver.
template <Row R, typename Function = typename RowTraits<R>::Function>
struct RowCall;
template <Row R, typename... A>
struct RowCall<R, CUresult(CUDAAPI*)(A...)> {
  static void Check(FakeDriver* driver, CUresult result) {
    Check(driver, result, std::index_sequence_for<A...>());
  }

 private:
  template <size_t... kPlaces>
  static void Check(FakeDriver* driver, CUresult result, std::index_sequence<kPlaces...>) {
    const std::string symbol = RowTraits<R>::kInfo.symbol;
    const auto function = reinterpret_cast<CUresult(CUDAAPI*)(A...)>(driver->wrappers.at(symbol));
    driver->calls.clear();
    driver->result = result;
    EXPECT_EQ(function(MakeArgument<A>(kPlaces)...), result) << symbol;
    ASSERT_EQ(driver->CountOf(symbol), 1u) << symbol;
    EXPECT_EQ(driver->calls.front().arguments, FakeDriver::Pack(MakeArgument<A>(kPlaces)...)) << symbol;
  }
};

class EveryRowTest : public HookTest {
 protected:
  template <Row R>
  static bool IsWrapped() {
    return driver().wrappers.contains(RowTraits<R>::kInfo.symbol);
  }
};

TEST_F(EveryRowTest, EachMustRowIsInstalled) {
  EXPECT_TRUE(report_.missing.empty());
  ForEachRow([&]<Row R>() {
    if constexpr (RowTraits<R>::kUse == SymbolUse::MUST) {
      EXPECT_TRUE(driver().wrappers.contains(RowTraits<R>::kInfo.symbol)) << RowTraits<R>::kInfo.symbol;
    }
    if constexpr (RowTraits<R>::kUse == SymbolUse::USED) {
      EXPECT_FALSE(driver().wrappers.contains(RowTraits<R>::kInfo.symbol)) << RowTraits<R>::kInfo.symbol;
    }
  });
  EXPECT_EQ(static_cast<size_t>(report_.installed), driver().wrappers.size());
}

TEST_F(EveryRowTest, FormsOfOneNameAreDistinctWrappers) {
  std::set<void*> seen;
  for (const auto& [symbol, wrapper] : driver().wrappers) EXPECT_TRUE(seen.insert(wrapper).second) << symbol;
}

TEST_F(EveryRowTest, PassesThroughBeforeThereIsAContext) {
  ForEachRow([&]<Row R>() {
    if (IsWrapped<R>()) {
      for (const CUresult result : {CUDA_SUCCESS, CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_OUT_OF_MEMORY}) {
        RowCall<R>::Check(&driver(), result);
      }
    }
  });
}

TEST_F(EveryRowTest, PassesCallsWithoutBlocksThroughWithAContext) {
  Publish();
  driver().device = 5;  // has no residency: its memory information is the driver's
  ForEachRow([&]<Row R>() {
    if (IsWrapped<R>()) {
      RowCall<R>::Check(&driver(), CUDA_SUCCESS);
      RowCall<R>::Check(&driver(), CUDA_ERROR_LAUNCH_FAILED);
    }
  });
  for (const FakeResidency& residency : residency_) {
    // Calls that are not understood may reach any block of any device; none names one.
    for (const FakeResidency::Launch& launch : residency.launches) EXPECT_TRUE(launch.set.empty());
    EXPECT_EQ(residency.launches.size(), static_cast<size_t>(residency.launches_reaching_all));
    EXPECT_TRUE(residency.pins.empty());
  }
}

TEST(InstallHooksTest, ReportsAMustRowThatCouldNotBeWrapped) {
  FakeDriver& driver = FakeDriver::Get();
  driver = FakeDriver();
  driver.refused = {"cuLaunchKernelEx_ptsz", "cuMemAlloc_v2"};
  driver.absent = {"cuMemcpyBatchAsync_v2"};
  const HookReport report = driver.Install();
  EXPECT_EQ(report.missing, std::vector<std::string>{"cuLaunchKernelEx_ptsz"});
  EXPECT_FALSE(driver.wrappers.contains("cuMemcpyBatchAsync_v2"));
  delete GetHookState();
  SetHookState(nullptr);
}

}  // namespace
}  // namespace spillway::integration
