#include "integration/hooks/early_reads.h"

#include <vector>

#include "integration/hooks/copy_access_sets.h"
#include "integration/hooks/launch_gate.h"
#include "tests/integration/hooks/hook_fixture.h"

namespace spillway::integration {
namespace {

class EarlyReadsTest : public HookTest {};

// Which blocks had been pinned when the call was made, and what became of the pins.
void ExpectEarly(FakeResidency* residency, const std::vector<allocator::BlockId>& blocks, CUstream stream) {
  ASSERT_EQ(residency->pins.size(), 1u);
  EXPECT_EQ(residency->pins[0].set, blocks);
  ASSERT_EQ(residency->ends.size(), 1u);
  EXPECT_EQ(residency->ends[0].held.size(), blocks.size());
  ASSERT_EQ(residency->ends[0].users.streams.size(), 1u);
  EXPECT_EQ(residency->ends[0].users.streams[0].handle, stream);
  residency->pins.clear();
  residency->ends.clear();
}

TEST_F(EarlyReadsTest, SourcesThatMayBeReadEarlyHaveArrivedBefore) {
  Publish();
  CUdeviceptr destinations[] = {Address(1), Address(2), Address(3)};
  CUdeviceptr sources[] = {Address(4), Address(5), Address(6)};
  size_t sizes[] = {64, 64, 64}, indices[] = {0, 1, 2};
  CopyAttributes attributes[3] = {};
  attributes[0].source_order = attributes[2].source_order = CopyAttributes::kStreamOrder;
  attributes[1].source_order = 3;  // CU_MEMCPY_SRC_ACCESS_ORDER_ANY
  const auto call = [&](size_t attribute_count) {
    using Attributes = CUmemcpyAttributes*;
    return driver().Hooked<Row::cuMemcpyBatchAsync_v2>()(destinations, sources, sizes, 3,
                                                         reinterpret_cast<Attributes>(attributes), indices,
                                                         attribute_count, Stream(2));
  };
  residency_[0].inside_run = [&] { EXPECT_EQ(residency_[0].pins.size(), 1u) << "not before the call"; };
  EXPECT_EQ(call(3), CUDA_SUCCESS);
  EXPECT_EQ(OnlyLaunch().set, (Ids{Id(1), Id(4), Id(2), Id(5), Id(3), Id(6)}));
  ExpectEarly(&residency_[0], {Id(5)}, Stream(2));
  EXPECT_EQ(call(2), CUDA_SUCCESS);  // the second goes on to the end
  ExpectEarly(&residency_[0], {Id(5), Id(6)}, Stream(2));
  residency_[0].inside_run = nullptr;
  EXPECT_EQ(call(1), CUDA_SUCCESS);
  EXPECT_TRUE(residency_[0].pins.empty());

  attributes[0].source_order = 2;  // CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL
  driver().Hooked<Row::cuMemcpyWithAttributesAsync>()(
      Address(1), Address(2), 64, reinterpret_cast<CUmemcpyAttributes*>(attributes), Stream(3));
  ExpectEarly(&residency_[0], {Id(2)}, Stream(3));
  CUDA_MEMCPY3D_BATCH_OP op = {};
  op.src.type = op.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  op.src.op.ptr.ptr = Address(4);
  op.dst.op.ptr.ptr = Address(1);
  op.extent = {1, 1, 1};
  op.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
  driver().Hooked<Row::cuMemcpy3DBatchAsync_v2>()(1, &op, 0, Stream(2));
  ExpectEarly(&residency_[0], {Id(4)}, Stream(2));
  residency_[0].pin_status = absl::ResourceExhaustedError("full");
  const size_t launches = residency_[0].launches.size();
  EXPECT_EQ(driver().Hooked<Row::cuMemcpy3DBatchAsync_v2>()(1, &op, 0, Stream(2)), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(residency_[0].launches.size(), launches);
}

}  // namespace
}  // namespace spillway::integration
