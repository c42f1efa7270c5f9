#include "integration/engine/nvrtc_code.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace spillway::integration {
namespace {

using testing::Contains;
using testing::ElementsAre;

size_t PlaceOf(const std::vector<std::string>& all, const std::string& one) {
  return static_cast<size_t>(std::find(all.begin(), all.end(), one) - all.begin());
}

TEST(NvrtcCodeTest, TheOneThatIsLoadedGoesFirst) {
  const auto candidates = NvrtcCandidates({"/x/torch/lib/libtorch_cuda.so", "/y/libnvrtc.so.12"});
  EXPECT_EQ(candidates.front(), "/y/libnvrtc.so.12");
}

TEST(NvrtcCodeTest, FoldersOfPyTorchsWheelsAreLookedThrough) {
  const auto candidates = NvrtcCandidates({"/p/site-packages/torch/lib/libtorch_cpu.so"});
  EXPECT_THAT(candidates, Contains("/p/site-packages/nvidia/cu13/lib/libnvrtc.so.13"));
  EXPECT_THAT(candidates, Contains("/p/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"));
  EXPECT_THAT(NvrtcCandidates({"/p/site-packages/nvidia/cudnn/lib/libcudnn.so.9"}),
              Contains("/p/site-packages/nvidia/cu13/lib/libnvrtc.so.13"));
}

TEST(NvrtcCodeTest, ACudaRuntimesFolderGoesBeforeTheWheels) {
  const auto candidates =
      NvrtcCandidates({"/p/site-packages/torch/lib/libtorch_cuda.so", "/opt/cuda/lib64/libcudart.so.13"});
  EXPECT_LT(PlaceOf(candidates, "/opt/cuda/lib64/libnvrtc.so.13"),
            PlaceOf(candidates, "/p/site-packages/nvidia/cu13/lib/libnvrtc.so.13"));
}

TEST(NvrtcCodeTest, WithoutEitherTheLoaderIsAsked) {
  EXPECT_THAT(NvrtcCandidates({"/usr/lib/libc.so.6", "/opt/lib/libsomething.so"}),
              ElementsAre("libnvrtc.so.13", "libnvrtc.so.12"));
}

TEST(NvrtcCodeTest, LoadedObjectsAreThere) {
  const std::vector<std::string> objects = LoadedObjects();
  EXPECT_TRUE(std::any_of(objects.begin(), objects.end(),
                          [](const std::string& path) { return path.find("libc.so") != std::string::npos; }));
}

}  // namespace
}  // namespace spillway::integration
