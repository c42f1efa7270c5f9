// The wrappers over the stand-in driver while device memory is closed to the host by memory protection keys:
// a wrapper that reads it is ended by SIGSEGV, as on hardware. device_sources_test.cc has every copy that
// looks through its source.

#include <csignal>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "integration/hooks/copy_access_sets.h"
#include "tests/integration/hooks/escaped_memory_fixture.h"

namespace spillway::integration {
namespace {

class ClosedMemoryTest : public EscapedMemoryTest {
 protected:
  static void SetUpTestSuite() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  void SetUp() override {
    if (reinterpret_cast<decltype(&simcuda_is_memory_closed)>(Symbol("simcuda_is_memory_closed"))() == 0)
      GTEST_SKIP() << "this machine has no memory protection keys (ospke in /proc/cpuinfo)";
    stream_ = device_.NewStream();
  }

  // The word is there when it returns, for any stream.
  void Put(CUdeviceptr to, uint64_t word) {
    Upload(to, {word});
    device_.Synchronize();
  }

  static constexpr char kByGraph[] = "cuGraphAddMemcpyNode";

  // Where a word is copied from and to, on the device.
  using Copy = std::function<CUresult(CUdeviceptr to, CUdeviceptr from)>;
  std::vector<std::pair<std::string, Copy>> Copies() {
    return {
        {"cuMemcpyHtoD",
         [this](auto to, auto from) { return Hooked<Row::cuMemcpyHtoD_v2>()(to, Host(from), 8); }},
        {"cuMemcpyHtoDAsync",
         [this](auto to, auto from) {
           return Hooked<Row::cuMemcpyHtoDAsync_v2>()(to, Host(from), 8, stream_);
         }},
        {"cuMemcpyHtoD_v2_ptds",
         [this](auto to, auto from) { return Hooked<Row::cuMemcpyHtoD_v2_ptds>()(to, Host(from), 8); }},
        {"cuMemcpy", [this](auto to, auto from) { return Hooked<Row::cuMemcpy>()(to, from, 8); }},
        {"cuMemcpyAsync",
         [this](auto to, auto from) { return Hooked<Row::cuMemcpyAsync>()(to, from, 8, stream_); }},
        {"cuMemcpy2DAsync", [this](auto to, auto from) { return CopyRow(to, from, CU_MEMORYTYPE_HOST); }},
        {"cuMemcpy2DAsync, unified",
         [this](auto to, auto from) { return CopyRow(to, from, CU_MEMORYTYPE_UNIFIED); }},
        {"cuMemcpyBatchAsync", [this](auto to, auto from) { return CopyBatch(to, from); }},
        {kByGraph, [this](auto to, auto from) { return CopyByGraph(to, from); }},
    };
  }
  static const void* Host(CUdeviceptr address) { return reinterpret_cast<const void*>(address); }

  CUresult CopyRow(CUdeviceptr to, CUdeviceptr from, CUmemorytype type) {
    CUDA_MEMCPY2D copy = {};
    copy.srcMemoryType = type;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcHost = type == CU_MEMORYTYPE_HOST ? Host(from) : nullptr;
    copy.srcDevice = type == CU_MEMORYTYPE_HOST ? 0 : from;
    copy.dstDevice = to;
    copy.WidthInBytes = 8;
    copy.Height = 1;
    return Hooked<Row::cuMemcpy2DAsync_v2>()(&copy, stream_);
  }
  // The source may be read during the call, as the driver does then.
  CUresult CopyBatch(CUdeviceptr to, CUdeviceptr from) {
    size_t bytes = 8, index = 0;
    CopyAttributes attributes = {};
    attributes.source_order = 3;  // CU_MEMCPY_SRC_ACCESS_ORDER_ANY
    return Hooked<Row::cuMemcpyBatchAsync_v2>()(
        &to, &from, &bytes, 1, reinterpret_cast<CUmemcpyAttributes*>(&attributes), &index, 1, stream_);
  }
  CUresult CopyByGraph(CUdeviceptr to, CUdeviceptr from) {
    CUDA_MEMCPY3D copy = {};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcHost = Host(from);
    copy.dstDevice = to;
    copy.WidthInBytes = 8;
    copy.Height = copy.Depth = 1;
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr;
    CUgraphExec exec = nullptr;
    EXPECT_EQ(Hooked<Row::cuGraphCreate>()(&graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(Hooked<Row::cuGraphAddMemcpyNode>()(&node, graph, nullptr, 0, &copy, CoreDevice::Context()),
              CUDA_SUCCESS);
    EXPECT_EQ(Hooked<Row::cuGraphInstantiateWithFlags>()(&exec, graph, 0), CUDA_SUCCESS);
    const CUresult result = Hooked<Row::cuGraphLaunch>()(exec, stream_);
    device_.Synchronize();
    EXPECT_EQ(Hooked<Row::cuGraphExecDestroy>()(exec), CUDA_SUCCESS);
    EXPECT_EQ(Hooked<Row::cuGraphDestroy>()(graph), CUDA_SUCCESS);
    return result;
  }

  CUstream stream_ = nullptr;
};

// Without it the cases below would show nothing.
TEST_F(ClosedMemoryTest, TheHostCannotReadIt) {
  EXPECT_EXIT(*reinterpret_cast<volatile uint64_t*>(external_), testing::KilledBySignal(SIGSEGV),
              "touched by a host thread");
}

TEST_F(ClosedMemoryTest, ItsWordsAreCopiedByEveryCall) {
  for (const auto& [name, copy] : Copies()) {
    SCOPED_TRACE(name);
    Put(external_, 0x1234);
    Put(external_ + 2048, 0);
    EXPECT_EQ(copy(external_ + 2048, external_), CUDA_SUCCESS);
    device_.Synchronize();
    EXPECT_EQ(Fetched<uint64_t>(external_ + 2048), 0x1234u);
  }
}

// Nobody reads the table for it: that an address lies there is known from the copy before.
TEST_F(ClosedMemoryTest, AnAddressThatIsCopiedOnKeepsItsBlock) {
  const CUdeviceptr target = Target(5);
  for (const auto& [name, copy] : Copies()) {
    if (name == kByGraph) continue;  // ends with its graph (docs/limits-integration.md)
    SCOPED_TRACE(name);
    Put(external_, target);
    EXPECT_EQ(copy(external_ + 2048, external_), CUDA_SUCCESS);
    device_.Synchronize();
    Put(external_, 0);  // from here on the copy alone keeps it
    Press();
    EXPECT_EQ(SumOf(external_ + 2048, 1), 5u);
    EXPECT_EQ(Missed(), 0u);
    Put(external_ + 2048, 0);
  }
}

// A block of ours as the source, which has been evicted.
TEST_F(ClosedMemoryTest, ABlockIsTheSourceOfACopyFromTheHost) {
  const CUdeviceptr block = Target(7);
  for (const auto& [name, copy] : Copies()) {
    SCOPED_TRACE(name);
    Press();
    EXPECT_EQ(copy(external_, block), CUDA_SUCCESS);
    device_.Synchronize();
    EXPECT_EQ(Fetched<uint32_t>(external_), 7u);
  }
  EXPECT_EQ(Missed(), 0u);
}

}  // namespace
}  // namespace spillway::integration
