// Textures and surfaces over blocks of ours, and the driver's tables of private functions.

#include <gmock/gmock.h>

#include "tests/integration/hooks/escape_fixture.h"

namespace spillway::integration {
namespace {

class EscapedObjectsTest : public EscapeHookTest {};

TEST_F(EscapedObjectsTest, ATexturePinsItsBlockWhileItExists) {
  CUDA_RESOURCE_DESC resource = {};
  resource.resType = CU_RESOURCE_TYPE_LINEAR;
  resource.res.linear.devPtr = Address(2);
  CUtexObject texture = 5;
  CUsurfObject surface = 5;
  driver().Hooked<Row::cuTexObjectCreate>()(&texture, &resource, nullptr, nullptr);
  driver().Hooked<Row::cuSurfObjectCreate>()(&surface, &resource);
  EXPECT_EQ(PinsOf(2, PinReason::kTexture), 2);
  CUtexObject kept = 6;
  driver().Hooked<Row::cuTexObjectCreate>()(&kept, &resource, nullptr, nullptr);
  driver().results["cuTexObjectDestroy"] = {CUDA_ERROR_UNKNOWN};
  driver().Hooked<Row::cuTexObjectDestroy>()(kept);
  EXPECT_EQ(PinsOf(2, PinReason::kTexture), 3) << "the driver has not destroyed it";
  driver().Hooked<Row::cuTexObjectDestroy>()(texture);
  EXPECT_EQ(PinsOf(2, PinReason::kTexture), 2);
  EXPECT_EQ(driver().CountOf("cuCtxSynchronize"), 1u) << "kernels that use it may be under way";
  driver().Hooked<Row::cuSurfObjectDestroy>()(surface);
  EXPECT_EQ(PinsOf(2, PinReason::kTexture), 1);
}

TEST_F(EscapedObjectsTest, UnknownPrivateTablesSwitchEvictionOffWhenStrict) {
  const void* table = nullptr;
  const CUuuid known = {{0x6b, static_cast<char>(0xd5), static_cast<char>(0xfb), 0x6c}};
  const CUuuid shared_by_libraries = {{0x21, 0x31, static_cast<char>(0x8c), 0x60}};  // cuBLAS, cuFFT
  const CUuuid unknown = {{1, 2, 3, 4}};
  driver().Hooked<Row::cuGetExportTable>()(&table, &unknown);
  EXPECT_EQ(switched_off(), "");
  context_.strict = true;
  driver().Hooked<Row::cuGetExportTable>()(&table, &known);
  driver().Hooked<Row::cuGetExportTable>()(&table, &shared_by_libraries);
  EXPECT_EQ(switched_off(), "");
  driver().Hooked<Row::cuGetExportTable>()(&table, &unknown);
  EXPECT_THAT(switched_off(),
              testing::StartsWith("private driver table 01020304-0000-0000-0000-000000000000, which "));
}

}  // namespace
}  // namespace spillway::integration
