// Tensor maps; graphs are in escaped_graphs_test.

#include "integration/hooks/escaped_families.h"

#include "tests/integration/hooks/escape_fixture.h"

namespace spillway::integration {
namespace {

TEST_F(TensorMapHookTest, AReplacedAddressIsFollowed) {
  driver().param_sizes = {sizeof(Struct)};
  Struct param;
  Fill(&param.map, 4);
  Encode(&param.map, Address(2));
  Fill(&param.map, 5);
  driver().Hooked<Row::cuTensorMapReplaceAddress>()(&param.map, reinterpret_cast<void*>(Address(6)));
  LaunchParam(&param);
  EXPECT_EQ(OnlyLaunch().set, Ids{Id(6)});
}

TEST_F(TensorMapHookTest, AMapOfAnotherClassLeadsWhereItLed) {
  driver().param_sizes = {sizeof(Struct)};
  Struct param;
  Fill(&param.map, 4);
  driver().overrides["cuTensorMapSetAllocationClass"] =
      reinterpret_cast<void*>(+[](CUtensorMap* map, int, int*) {
        Fill(map, 5);  // changed in place
        return CUDA_SUCCESS;
      });
  delete GetHookState();
  Install();
  Publish();
  Encode(&param.map, Address(2));
  driver().Hooked<Row::cuTensorMapSetAllocationClass>()(&param.map, {}, nullptr);
  LaunchParam(&param);
  EXPECT_EQ(OnlyLaunch().set, Ids{Id(2)});
}

TEST_F(TensorMapHookTest, MapsOverExternalMemoryCostNothing) {
  CUtensorMap map;
  Fill(&map, 7);
  Encode(&map, kExternal);
  EXPECT_FALSE(state()->tensor_maps.any());
}

TEST_F(TensorMapHookTest, AMapThatCannotBeRememberedPinsItsBlock) {
  // Far more than there are places for, all over a block in use.
  CUtensorMap map;
  for (uint64_t i = 0; i < 40'000 && residency_[0].pins.empty(); ++i) {
    Fill(&map, 0);
    std::memcpy(&map, &i, sizeof(i));
    Encode(&map, Address(2));
  }
  ExpectPinned(PinReason::kUnknownCall, {Id(2)});
}

}  // namespace
}  // namespace spillway::integration
