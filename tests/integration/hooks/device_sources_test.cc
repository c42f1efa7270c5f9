// Copies whose source lies on the device, whatever the call is called: by unified addressing the driver takes it, and
// the host cannot read there. Every wrapper that looks through a source must leave such a one alone. Here nobody can
// read the pages that the driver says are a device's; closed_memory_test.cc has the stand-in driver.

#include <sys/mman.h>

#include <cstring>
#include <functional>
#include <set>

#include "integration/hooks/copy_access_sets.h"
#include "tests/integration/hooks/hook_fixture.h"

namespace spillway::integration {
namespace {

constexpr uint64_t kTo = 0x1000;  // external memory
constexpr size_t kBytes = 64;

// The source, and a stream.
using CopyFrom = std::function<CUresult(const FakeDriver&, void*, CUstream)>;
struct Case {
  const char* name;  // of the function, without the suffixes of its ABIs
  CopyFrom copy;
};

CUdeviceptr DeviceAddress(void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

// Two rows. The job says of the source that it is the host's, or nothing.
template <typename Copy>
Copy Pitched(void* from, CUmemorytype type) {
  Copy copy = {};
  copy.srcMemoryType = type;
  copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  if (type == CU_MEMORYTYPE_HOST) {
    copy.srcHost = from;
  } else {
    copy.srcDevice = DeviceAddress(from);
  }
  copy.dstDevice = kTo;
  copy.WidthInBytes = kBytes / 2;
  copy.Height = 2;
  if constexpr (requires { copy.Depth; }) copy.Depth = 1;
  return copy;
}

CUDA_MEMCPY3D_BATCH_OP PitchedOperation(void* from) {
  CUDA_MEMCPY3D_BATCH_OP op = {};
  op.src.type = op.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  op.src.op.ptr.ptr = DeviceAddress(from);
  op.dst.op.ptr.ptr = kTo;
  op.extent = {kBytes, 1, 1};
  op.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  return op;
}

template <Row R>
CUresult Linear(const FakeDriver& driver, void* from, CUstream stream) {
  using Function = typename RowTraits<R>::Function;
  if constexpr (requires(Function f) { f(kTo, static_cast<const void*>(from), kBytes, stream); }) {
    return driver.Hooked<R>()(kTo, static_cast<const void*>(from), kBytes, stream);
  } else if constexpr (requires(Function f) { f(kTo, static_cast<const void*>(from), kBytes); }) {
    return driver.Hooked<R>()(kTo, static_cast<const void*>(from), kBytes);
  } else if constexpr (requires(Function f) { f(kTo, DeviceAddress(from), kBytes, stream); }) {
    return driver.Hooked<R>()(kTo, DeviceAddress(from), kBytes, stream);
  } else {
    return driver.Hooked<R>()(kTo, DeviceAddress(from), kBytes);
  }
}

// Both of what the job may say of the source; the second answer.
template <Row R, typename Copy>
CUresult Rows(const FakeDriver& driver, void* from, CUstream stream) {
  CUresult result = CUDA_SUCCESS;
  for (const CUmemorytype type : {CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_UNIFIED}) {
    const Copy copy = Pitched<Copy>(from, type);
    if constexpr (requires { driver.Hooked<R>()(&copy, stream); }) {
      result = driver.Hooked<R>()(&copy, stream);
    } else {
      result = driver.Hooked<R>()(&copy);
    }
  }
  return result;
}

CUresult Attributed(const FakeDriver& driver, void* from, CUstream stream) {
  CopyAttributes attributes = {};
  attributes.source_order = CopyAttributes::kStreamOrder;
  return driver.Hooked<Row::cuMemcpyWithAttributesAsync>()(
      kTo, DeviceAddress(from), kBytes, reinterpret_cast<CUmemcpyAttributes*>(&attributes), stream);
}

CUresult Batch(const FakeDriver& driver, void* from, CUstream stream) {
  CUdeviceptr destinations[] = {kTo}, sources[] = {DeviceAddress(from)};
  size_t sizes[] = {kBytes}, failed = 0;
  driver.Hooked<Row::cuMemcpyBatchAsync>()(destinations, sources, sizes, 1, nullptr, nullptr, 0, &failed,
                                           stream);
  return driver.Hooked<Row::cuMemcpyBatchAsync_v2>()(destinations, sources, sizes, 1, nullptr, nullptr, 0,
                                                     stream);
}

CUresult PitchedBatch(const FakeDriver& driver, void* from, CUstream stream) {
  CUDA_MEMCPY3D_BATCH_OP op = PitchedOperation(from);
  return driver.Hooked<Row::cuMemcpy3DBatchAsync_v2>()(1, &op, 0, stream);
}

CUresult PitchedAttributed(const FakeDriver& driver, void* from, CUstream stream) {
  CUDA_MEMCPY3D_BATCH_OP op = PitchedOperation(from);
  return driver.Hooked<Row::cuMemcpy3DWithAttributesAsync>()(&op, 0, stream);
}

// The operations have a type of their own only in newer headers.
template <typename Op>
CUresult CallFabric(CUresult(CUDAAPI* copy)(size_t, Op*, unsigned long long, CUstream), void* ops,
                    CUstream stream) {
  return copy(1, static_cast<Op*>(ops), 0, stream);
}
CUresult Fabric(const FakeDriver& driver, void* from, CUstream stream) {
  FabricCopy copy = {};
  copy.source = {FabricCopy::Operand::kPointer, DeviceAddress(from), 0};
  copy.destination = {FabricCopy::Operand::kPointer, kTo, 0};
  copy.bytes = kBytes;
  return CallFabric(driver.Hooked<Row::cuFabricCpyBatchAsync>(), &copy, stream);
}

CUresult MemcpyNode(const FakeDriver& driver, void* from, CUstream) {
  const auto graph = reinterpret_cast<CUgraph>(0xb000);
  const auto copy = Pitched<CUDA_MEMCPY3D>(from, CU_MEMORYTYPE_HOST);
  CUgraphNode node = nullptr;
  return driver.Hooked<Row::cuGraphAddMemcpyNode>()(&node, graph, nullptr, 0, &copy, nullptr);
}
CUresult NewParameters(const FakeDriver& driver, void* from, CUstream) {
  const auto copy = Pitched<CUDA_MEMCPY3D>(from, CU_MEMORYTYPE_HOST);
  return driver.Hooked<Row::cuGraphMemcpyNodeSetParams>()(reinterpret_cast<CUgraphNode>(0xb100), &copy);
}
CUresult NewParametersOfExec(const FakeDriver& driver, void* from, CUstream) {
  const auto copy = Pitched<CUDA_MEMCPY3D>(from, CU_MEMORYTYPE_HOST);
  return driver.Hooked<Row::cuGraphExecMemcpyNodeSetParams>()(
      reinterpret_cast<CUgraphExec>(0xc000), reinterpret_cast<CUgraphNode>(0xb100), &copy, nullptr);
}
CUresult AnyNode(const FakeDriver& driver, void* from, CUstream) {
  CUgraphNodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  params.memcpy.copyParams = Pitched<CUDA_MEMCPY3D>(from, CU_MEMORYTYPE_UNIFIED);
  CUgraphNode node = nullptr;
  return driver.Hooked<Row::cuGraphAddNode_v2>()(&node, reinterpret_cast<CUgraph>(0xb000), nullptr, nullptr,
                                                 0, &params);
}

const Case kCases[] = {
    {"cuMemcpy", Linear<Row::cuMemcpy>},
    {"cuMemcpyAsync", Linear<Row::cuMemcpyAsync>},
    {"cuMemcpyHtoD", Linear<Row::cuMemcpyHtoD_v2>},
    {"cuMemcpyHtoDAsync", Linear<Row::cuMemcpyHtoDAsync_v2>},
    {"cuMemcpy2D", Rows<Row::cuMemcpy2D_v2, CUDA_MEMCPY2D>},
    {"cuMemcpy2DAsync", Rows<Row::cuMemcpy2DAsync_v2, CUDA_MEMCPY2D>},
    {"cuMemcpy2DUnaligned", Rows<Row::cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D>},
    {"cuMemcpy3D", Rows<Row::cuMemcpy3D_v2, CUDA_MEMCPY3D>},
    {"cuMemcpy3DAsync", Rows<Row::cuMemcpy3DAsync_v2, CUDA_MEMCPY3D>},
    {"cuMemcpy3DPeer", Rows<Row::cuMemcpy3DPeer, CUDA_MEMCPY3D_PEER>},
    {"cuMemcpy3DPeerAsync", Rows<Row::cuMemcpy3DPeerAsync, CUDA_MEMCPY3D_PEER>},
    {"cuMemcpyWithAttributesAsync", Attributed},
    {"cuMemcpyBatchAsync", Batch},
    {"cuMemcpy3DBatchAsync", PitchedBatch},
    {"cuMemcpy3DWithAttributesAsync", PitchedAttributed},
    {"cuFabricCpyBatchAsync", Fabric},
    {"cuGraphAddMemcpyNode", MemcpyNode},
    {"cuGraphMemcpyNodeSetParams", NewParameters},
    {"cuGraphExecMemcpyNodeSetParams", NewParametersOfExec},
    {"cuGraphAddNode", AnyNode},
};

class DeviceSourcesTest : public HookTest {
 protected:
  DeviceSourcesTest() : pages_(mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    EXPECT_NE(pages_, MAP_FAILED);
    Publish();
  }
  ~DeviceSourcesTest() override { munmap(pages_, 4096); }

  void* const pages_;
};

TEST_F(DeviceSourcesTest, AreReadByNoWrapper) {
  for (const Case& one : kCases) {
    SCOPED_TRACE(one.name);
    driver().pointer_answer = CUDA_SUCCESS;  // a device's
    driver().calls.clear();
    EXPECT_EQ(one.copy(driver(), pages_, Stream(2)), CUDA_SUCCESS);
    EXPECT_FALSE(driver().calls.empty()) << "the driver has not seen the call";
    EXPECT_TRUE(residency_[0].pins.empty());
    // Where the driver tells nothing, what the process can read counts.
    driver().results["cuPointerGetAttribute"] = {CUDA_ERROR_UNKNOWN, CUDA_ERROR_UNKNOWN};
    EXPECT_EQ(one.copy(driver(), pages_, Stream(2)), CUDA_SUCCESS);
    driver().results.clear();
  }
}

// The same calls find what lies in a host's source: without that the case above would show nothing.
TEST_F(DeviceSourcesTest, AreTheOnlyOnesThatAreLeftAlone) {
  uint64_t table[kBytes / 8] = {};
  for (uint64_t& word : table) word = Address(2);
  for (const Case& one : kCases) {
    SCOPED_TRACE(one.name);
    EXPECT_EQ(one.copy(driver(), table, Stream(2)), CUDA_SUCCESS);
    EXPECT_FALSE(residency_[0].pins.empty());
    residency_[0].pins.clear();
    uint64_t zeros[kBytes / 8] = {};
    EXPECT_EQ(one.copy(driver(), zeros, Stream(2)), CUDA_SUCCESS);
    residency_[0].pins.clear();
  }
}

// A copy that is new in the tables has a case, or a reason to be among the others.
TEST_F(DeviceSourcesTest, EveryCopyIsSorted) {
  const std::set<std::string> sources_not_looked_through = {
      "cuMemcpyDtoH",      "cuMemcpyDtoHAsync", "cuMemcpyDtoD", "cuMemcpyDtoDAsync", "cuMemcpyPeer",
      "cuMemcpyPeerAsync", "cuMemcpyAtoA",      "cuMemcpyAtoH", "cuMemcpyAtoHAsync", "cuMemcpyHtoA",
      "cuMemcpyHtoAAsync", "cuMemcpyAtoD",      "cuMemcpyDtoA"};
  std::set<std::string> cases;
  for (const Case& one : kCases) cases.insert(one.name);
  ForEachRow([&]<Row R>() {
    const std::string name(BaseNameOf(RowTraits<R>::kInfo.symbol));
    if (!name.starts_with("cuMemcpy") && !name.starts_with("cuFabricCpy")) return;
    EXPECT_EQ(cases.count(name) + sources_not_looked_through.count(name), 1u) << name;
  });
}

}  // namespace
}  // namespace spillway::integration
