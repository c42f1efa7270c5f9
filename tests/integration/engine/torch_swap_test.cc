#include "integration/engine/torch_swap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace spillway::integration {
namespace {

namespace fs = std::filesystem;

class TorchSwapTest : public ::testing::Test {
 protected:
  TorchSwapTest() {
    char name[] = "/tmp/spillway_torch_XXXXXX";
    root_ = ::mkdtemp(name);
    fs::create_directories(root_ + "/torch/lib");
  }
  ~TorchSwapTest() override { fs::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) { std::ofstream(root_ + path) << text; }
  std::string root_;
};

TEST_F(TorchSwapTest, ReadsTheVersionOfAWheel) {
  Write("/torch/version.py", "from typing import Optional\n__version__ = '2.11.0+cu130'\ndebug = False\n");
  EXPECT_EQ(TorchMinorVersion(root_ + "/torch/lib/libc10_cuda.so").value(), "2.11");
}

TEST_F(TorchSwapTest, ReadsTheVersionOfALibrary) {
  Write("/torch/build-version", "2.9.1+cu128\n");
  EXPECT_EQ(TorchMinorVersion(root_ + "/torch/lib/libc10_cuda.so").value(), "2.9");
}

TEST_F(TorchSwapTest, NoVersionIsAnError) {
  Write("/torch/version.py", "__version__ = 'unknown'\n");
  EXPECT_EQ(TorchMinorVersion(root_ + "/torch/lib/libc10_cuda.so").status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(TorchSwapTest, ListsTheVersionsThatAreThere) {
  for (const char* file :
       {"/libspillway_torch_2_9.so", "/libspillway_torch_2_11.so", "/libspillway_engine.so"}) {
    Write(file, "");
  }
  EXPECT_THAT(TorchVersionsIn(root_), ::testing::UnorderedElementsAre("2.9", "2.11"));
  EXPECT_TRUE(TorchVersionsIn(root_ + "/none").empty());
}

TEST_F(TorchSwapTest, WithoutPyTorchNothingHappens) {
  EXPECT_EQ(MappedTorchLibrary(), "");
  ::testing::internal::CaptureStderr();
  TorchSwap swap(root_, nullptr);
  swap.Try();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace spillway::integration
