#include "integration/escape/nccl_versions.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace spillway::integration {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

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

}  // namespace
}  // namespace spillway::integration
