#include "integration/escape/nccl_kernels.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace spillway::integration {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

// ---- Versions.

class Library {
 public:
  explicit Library(const char* version)
      : handle_(dlopen((FAKE_NCCL + std::string(version) + ".so").c_str(), RTLD_NOW | RTLD_LOCAL)) {
    EXPECT_NE(handle_, nullptr) << dlerror();
  }
  ~Library() { dlclose(handle_); }

 private:
  void* const handle_;
};

TEST(NcclVersionsTest, ThereIsNoneWithoutNccl) { EXPECT_THAT(LoadedNcclVersions(), ElementsAre()); }

// As PyTorch loads it: by another library, its symbols not in the global scope.
TEST(NcclVersionsTest, AnObjectWithPrivateSymbolsIsFound) {
  const Library nccl("22809");
  EXPECT_EQ(dlsym(RTLD_DEFAULT, "ncclGetVersion"), nullptr);
  EXPECT_THAT(LoadedNcclVersions(), ElementsAre(22809));
}

TEST(NcclVersionsTest, EachOneIsAsked) {
  const Library first("22809"), second("23007"), third("99900");
  EXPECT_THAT(LoadedNcclVersions(), UnorderedElementsAre(22809, 23007, 99900));
}

TEST(NcclVersionsTest, OneThatFailsCountsAsAVersionThatIsNotKnown) {
  const Library broken("-1");
  EXPECT_THAT(LoadedNcclVersions(), ElementsAre(0));
}

TEST(NcclVersionsTest, OneThatIsUnloadedIsForgotten) {
  { const Library nccl("23007"); }
  EXPECT_THAT(LoadedNcclVersions(), ElementsAre());
}

// ---- Kernels and their arguments.

constexpr char kMangled[] = "_Z40ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE";

TEST(NcclKernelsTest, NamesAreKnownMangledAndNot) {
  for (const char* name : {kMangled, "ncclDevKernel_Broadcast_RING_LL", "_Z21ncclDevKernel_Generic24x",
                           "ncclKernel_AllReduce_RING_LL_Sum_float", "_Z10ncclKernel_1"}) {
    EXPECT_TRUE(IsNcclName(name)) << name;
  }
  for (const char* name : {"", "_Z", "_Z12", "_ZN5other14ncclDevKernel_E", "my_ncclDevKernel_", "_Z5add_1Pf",
                           "_Z17ncclSymkDevKernel_AllReduce", "ncclDevKernel"}) {
    EXPECT_FALSE(IsNcclName(name)) << name;
  }
}

TEST(NcclKernelsTest, AKnownVersionWithItsParameterIsFollowed) {
  EXPECT_EQ(RecognizeNccl(kMangled, 1, 4096, {22809}), NcclKernel::kFollowed);
  EXPECT_EQ(RecognizeNccl(kMangled, 1, 4096, {23007, 22809}), NcclKernel::kFollowed);
  EXPECT_EQ(RecognizeNccl("add", 1, 4096, {22809}), NcclKernel::kNone);
  EXPECT_EQ(RecognizeNccl("add", 3, 8, {}), NcclKernel::kNone);
}

TEST(NcclKernelsTest, AnythingElseOfNcclsIsUnknown) {
  EXPECT_EQ(RecognizeNccl(kMangled, 1, 4096, {}), NcclKernel::kUnknown) << "no version to be had";
  EXPECT_EQ(RecognizeNccl(kMangled, 1, 4096, {0}), NcclKernel::kUnknown);
  EXPECT_EQ(RecognizeNccl(kMangled, 1, 4096, {22703}), NcclKernel::kUnknown);
  EXPECT_EQ(RecognizeNccl(kMangled, 1, 4096, {23100}), NcclKernel::kUnknown);
  EXPECT_EQ(RecognizeNccl(kMangled, 1, 4096, {22809, 99900}), NcclKernel::kUnknown) << "whose kernel is it?";
  EXPECT_EQ(RecognizeNccl(kMangled, 1, 4088, {22809}), NcclKernel::kUnknown);
  EXPECT_EQ(RecognizeNccl(kMangled, 1, 32764, {22809}), NcclKernel::kUnknown);
  EXPECT_EQ(RecognizeNccl(kMangled, 3, 8, {22809}), NcclKernel::kUnknown);
  EXPECT_EQ(RecognizeNccl(kMangled, 0, 0, {22809}), NcclKernel::kUnknown);
}

class ArgumentsTest : public testing::Test {
 protected:
  ArgumentsTest() { std::memset(bytes_ + 20, 0xff, 4); }
  bool InArguments(size_t size) const { return NcclWorksAreInArguments(bytes_, size); }

  unsigned char bytes_[4096 + 16] = {};
};

TEST_F(ArgumentsTest, TheStorageTypeDecides) {
  EXPECT_TRUE(InArguments(4096));
  EXPECT_TRUE(InArguments(32));
  for (const int storage : {1, 2, 3, 255}) {
    bytes_[16] = static_cast<unsigned char>(storage);
    EXPECT_FALSE(InArguments(4096)) << storage;
  }
}

TEST_F(ArgumentsTest, TheBytesBesideTheTypeAreNotLookedAt) {
  std::memset(bytes_ + 17, 0xee, 3);  // padding
  std::memset(bytes_, 0x11, 16);
  EXPECT_TRUE(InArguments(64));
}

TEST_F(ArgumentsTest, ABufferOrAMaskThatNcclWouldNotSetIsNotBelieved) {
  bytes_[24] = 1;
  EXPECT_FALSE(InArguments(4096));
  bytes_[24] = 0;
  bytes_[21] = 0x0f;
  EXPECT_FALSE(InArguments(4096));
}

TEST_F(ArgumentsTest, SizesThatNcclDoesNotSendAreNotBelieved) {
  EXPECT_FALSE(InArguments(0));
  EXPECT_FALSE(InArguments(24));
  EXPECT_FALSE(InArguments(4112));
  EXPECT_FALSE(NcclWorksAreInArguments(nullptr, 4096));
}

}  // namespace
}  // namespace spillway::integration
