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
  EXPECT_EQ(TorchRelease(root_ + "/torch/lib/libc10_cuda.so").value(), "2.11.0+cu130");
}

TEST_F(TorchSwapTest, ReadsTheVersionOfALibrary) {
  Write("/torch/build-version", "2.9.1+cu128\n");
  EXPECT_EQ(TorchRelease(root_ + "/torch/lib/libc10_cuda.so").value(), "2.9.1+cu128");
}

TEST_F(TorchSwapTest, ReadsAVersionHoweverItIsSpaced) {
  for (const char* line : {"__version__='2.11.0a0+git'", "__version__  =\t\"2.11.0a0+git\"  # made"}) {
    Write("/torch/version.py", std::string("__version_info__ = '1.2.3'\n") + line);
    EXPECT_EQ(TorchRelease(root_ + "/torch/lib/libc10_cuda.so").value(), "2.11.0a0+git") << line;
  }
}

TEST_F(TorchSwapTest, NoVersionIsAnError) {
  for (const char* line : {"__version__ = 'unknown'", "__version__ = '2'", "__version__ = '2.'",
                           "__version__ = '2.11'", "__version__ = '.11.0'", "__version__ = 2.11.0",
                           "__version__ '2.11.0'", "__version__ =", "__version__", ""}) {
    Write("/torch/version.py", line);
    EXPECT_EQ(TorchRelease(root_ + "/torch/lib/libc10_cuda.so").status().code(), absl::StatusCode::kNotFound)
        << line;
  }
}

TEST_F(TorchSwapTest, FindsTheMinorOfARelease) {
  EXPECT_EQ(MinorOf("2.11.0+cu130"), "2.11");
  EXPECT_EQ(MinorOf("2.9.0a0+50eac81.nv25.09"), "2.9");
  for (const char* release : {"", "2", "2.", "2.11", ".11.0", "two.11.0"})
    EXPECT_EQ(MinorOf(release), "") << release;
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
  TorchSwap swap(root_, nullptr, IfNotServed::kEndJob);
  swap.Try();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace spillway::integration
