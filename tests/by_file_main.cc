// --file=NAME runs the tests of NAME.cc and nothing else. Programs of many test files are made so: each file has a process
// of its own, since it sets up the process or wears it out, but they are compiled and linked together.

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>

namespace {

// The cases of a file as a filter of GoogleTest's; empty when there are none.
std::string CasesOf(std::string_view file) {
  std::string filter;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int k = 0; k < suite.total_test_count(); ++k) {
      const testing::TestInfo& one = *suite.GetTestInfo(k);
      if (std::filesystem::path(one.file()).stem() != file) continue;
      filter += (filter.empty() ? "" : ":") + std::string(suite.name()) + "." + one.name();
    }
  }
  return filter;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  constexpr std::string_view kFile = "--file=";
  // A death test starts the program again with a filter of its own.
  const bool all = testing::GTEST_FLAG(filter) == "*";
  if (all && argc > 1 && std::string_view(argv[1]).starts_with(kFile)) {
    const std::string filter = CasesOf(std::string_view(argv[1]).substr(kFile.size()));
    if (filter.empty()) {
      std::fprintf(stderr, "%s: there are no tests of that file\n", argv[1]);
      return 2;
    }
    testing::GTEST_FLAG(filter) = filter;
  }
  return RUN_ALL_TESTS();
}
