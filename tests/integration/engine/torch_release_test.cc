#include "integration/engine/torch_release.h"

#include <gtest/gtest.h>

namespace spillway::integration {
namespace {

TEST(TorchReleaseTest, ReleasesAreToldFromWhatLiesBetweenThem) {
  for (const char* release : {"2.11.0", "2.11.1+cu130", "2.11.0+git1234", "2.1.0.post2"})
    EXPECT_FALSE(IsDevelopmentBuild(release)) << release;
  for (const char* build : {"2.12.0a0", "2.12.0a0+git1234", "2.9.0a0+50eac81.nv25.09",
                            "2.12.0.dev20260101+cu130", "2.11.0rc1", "2.11.0b2"})
    EXPECT_TRUE(IsDevelopmentBuild(build)) << build;
}

}  // namespace
}  // namespace spillway::integration
