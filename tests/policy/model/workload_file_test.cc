#include "policy/model/workload_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "policy/offline/workload_csv.h"
#include "tests/policy/workload_helpers.h"

namespace spillway::policy {
namespace {

using ::testing::HasSubstr;

TEST(WorkloadFileTest, SurvivesBothWaysAndIsSmall) {
  const Workload workload = G10Workload("resnet152-1280");
  const std::string bytes = EncodeWorkload(workload);
  const auto again = DecodeWorkload(bytes);
  ASSERT_TRUE(again.ok()) << again.status();
  ExpectSame(workload, *again);
  EXPECT_LT(bytes.size(), KernelsCsv(workload).size() + TensorsCsv(workload).size());
}

TEST(WorkloadFileTest, EveryCutIsAnErrorWithItsOffset) {
  const std::string bytes = EncodeWorkload(MountainWorkload());
  for (size_t size = 0; size < bytes.size(); ++size) {
    const auto workload = DecodeWorkload(bytes.substr(0, size));
    ASSERT_FALSE(workload.ok()) << size;
    EXPECT_THAT(std::string(workload.status().message()), HasSubstr("at offset "));
  }
}

TEST(WorkloadFileTest, EveryChangedByteIsAnError) {
  const std::string bytes = EncodeWorkload(MountainWorkload());
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      EXPECT_FALSE(DecodeWorkload(damaged).ok()) << i << " bit " << bit;
    }
  }
}

TEST(WorkloadFileTest, OtherFilesAndOtherVersionsAreRefused) {
  EXPECT_THAT(std::string(DecodeWorkload("PK\x03\x04 something else").status().message()),
              HasSubstr("at offset 0: no Spillway trace"));
  std::string bytes = EncodeWorkload(MountainWorkload());
  bytes[8] = 9;
  EXPECT_THAT(std::string(DecodeWorkload(bytes).status().message()), HasSubstr("at offset 8: version 9"));
  EXPECT_THAT(std::string(DecodeWorkload(EncodeWorkload(MountainWorkload()) + "x").status().message()),
              HasSubstr("at offset "));
}

}  // namespace
}  // namespace spillway::policy
