// The families that stand for many functions: pinned, not followed.

#include "integration/hooks/hook_families.h"

#include <functional>

#include "tests/integration/hooks/hook_fixture.h"

namespace spillway::integration {
namespace {

using allocator::PinReason;

// Each call that pins its blocks, with the reason.
struct PinnedCallCase {
  const char* name;
  PinReason reason;
  std::function<CUresult(FakeDriver&, uint64_t address)> call;
};

class PinnedCallTest : public HookTest, public testing::WithParamInterface<PinnedCallCase> {};

TEST_P(PinnedCallTest, PinsBeforeTheRealCallAndRefusesWhenItCannot) {
  Publish();
  EXPECT_EQ(GetParam().call(driver(), Address(3)), CUDA_SUCCESS);
  ExpectPinned(GetParam().reason, {Id(3)});
  EXPECT_EQ(driver().CountOf(GetParam().name), 1u);
  EXPECT_TRUE(residency_[0].launches.empty());
  residency_[0].pin_status = absl::ResourceExhaustedError("full");
  EXPECT_EQ(GetParam().call(driver(), Address(3)), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(driver().CountOf(GetParam().name), 1u);
}

const PinnedCallCase kPinnedCallCases[] = {
    {"cuIpcGetMemHandle", PinReason::kExport,
     [](FakeDriver& d, uint64_t a) { return d.Hooked<Row::cuIpcGetMemHandle>()(nullptr, a); }},
    {"cuMemGetHandleForAddressRange", PinReason::kExport,
     [](FakeDriver& d, uint64_t a) {
       return d.Hooked<Row::cuMemGetHandleForAddressRange>()(nullptr, a, 4096,
                                                             CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
     }},
    {"cuMulticastBindAddr", PinReason::kPeer,
     [](FakeDriver& d, uint64_t a) { return d.Hooked<Row::cuMulticastBindAddr>()(1, 0, a, 4096, 0); }},
    {"cuMemSetAccess", PinReason::kPeer,
     [](FakeDriver& d, uint64_t a) { return d.Hooked<Row::cuMemSetAccess>()(a, 4096, nullptr, 0); }},
    {"cuTexObjectCreate", PinReason::kTexture,
     [](FakeDriver& d, uint64_t a) {
       CUDA_RESOURCE_DESC resource = {};
       resource.resType = CU_RESOURCE_TYPE_LINEAR;
       resource.res.linear.devPtr = a;
       return d.Hooked<Row::cuTexObjectCreate>()(nullptr, &resource, nullptr, nullptr);
     }},
    {"cuTexRefSetAddress_v2", PinReason::kTexture,
     [](FakeDriver& d, uint64_t a) {
       return d.Hooked<Row::cuTexRefSetAddress_v2>()(nullptr, nullptr, a, 64);
     }},
    {"cuPointerSetAttribute", PinReason::kUnknownCall,
     [](FakeDriver& d, uint64_t a) {
       return d.Hooked<Row::cuPointerSetAttribute>()(nullptr, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a);
     }},
    {"cuMemAdvise_v2", PinReason::kUnknownCall,
     [](FakeDriver& d, uint64_t a) {
       return d.Hooked<Row::cuMemAdvise_v2>()(a, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, {});
     }},
    {"cuGraphAddKernelNode_v2", PinReason::kGraph,
     [](FakeDriver& d, uint64_t a) {
       d.param_sizes = {8};
       void* params[] = {&a};
       CUDA_KERNEL_NODE_PARAMS node = {};
       node.func = reinterpret_cast<CUfunction>(0xa000);
       node.kernelParams = params;
       return d.Hooked<Row::cuGraphAddKernelNode_v2>()(nullptr, nullptr, nullptr, 0, &node);
     }},
    {"cuGraphExecMemcpyNodeSetParams", PinReason::kGraph,
     [](FakeDriver& d, uint64_t a) {
       CUDA_MEMCPY3D copy = {};
       copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
       copy.srcDevice = a;
       copy.dstMemoryType = CU_MEMORYTYPE_HOST;
       copy.WidthInBytes = copy.Height = copy.Depth = 8;
       return d.Hooked<Row::cuGraphExecMemcpyNodeSetParams>()(nullptr, nullptr, &copy, nullptr);
     }},
    {"cuGraphAddMemsetNode", PinReason::kGraph,
     [](FakeDriver& d, uint64_t a) {
       CUDA_MEMSET_NODE_PARAMS node = {};
       node.dst = a;
       node.elementSize = 4;
       node.width = 16;
       node.height = 1;
       return d.Hooked<Row::cuGraphAddMemsetNode>()(nullptr, nullptr, nullptr, 0, &node, nullptr);
     }},
    {"cuGraphAddNode_v2", PinReason::kGraph,
     [](FakeDriver& d, uint64_t a) {
       CUgraphNodeParams node = {};
       node.type = CU_GRAPH_NODE_TYPE_MEMSET;
       node.memset.dst = a;
       node.memset.elementSize = 1;
       node.memset.width = node.memset.height = 4;
       node.memset.pitch = 64;
       return d.Hooked<Row::cuGraphAddNode_v2>()(nullptr, nullptr, nullptr, nullptr, 0, &node);
     }},
    {"cuGraphNodeSetParams", PinReason::kGraph,
     [](FakeDriver& d, uint64_t a) {
       CUgraphNodeParams node = {};
       node.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
       node.free.dptr = a;
       return d.Hooked<Row::cuGraphNodeSetParams>()(nullptr, &node);
     }},
    {"cuGraphAddMemFreeNode", PinReason::kGraph,
     [](FakeDriver& d, uint64_t a) {
       return d.Hooked<Row::cuGraphAddMemFreeNode>()(nullptr, nullptr, nullptr, 0, a);
     }},
};

INSTANTIATE_TEST_SUITE_P(Calls, PinnedCallTest, testing::ValuesIn(kPinnedCallCases),
                         [](const auto& test) { return std::string(test.param.name); });

class NotFollowedTest : public HookTest {};

TEST_F(NotFollowedTest, LaunchesOfTheFirstInterfaceSwitchEvictionOff) {
  Publish();
  driver().Hooked<Row::cuParamSeti>()(Function(), 0, 7);
  driver().Hooked<Row::cuLaunch>()(Function());
  EXPECT_EQ(switched_off(), "cuParamSeti;");
}

}  // namespace
}  // namespace spillway::integration
