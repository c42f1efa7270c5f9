// --file=NAME runs the tests of NAME.cc and nothing else. Programs of many test files are made so: each file has a process
// of its own, since it sets up the process or wears it out, but they are compiled and linked together. Where all of its
// tests are skipped, so is the file, with the reason in the last line.

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

// Why the first of the skipped tests is.
std::string ReasonOfSkip() {
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int k = 0; k < suite.total_test_count(); ++k) {
      const testing::TestResult& result = *suite.GetTestInfo(k)->result();
      for (int part = 0; part < result.total_part_count(); ++part) {
        if (result.GetTestPartResult(part).skipped()) return result.GetTestPartResult(part).message();
      }
    }
  }
  return "";
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
  const int result = RUN_ALL_TESTS();
  const testing::UnitTest& run = *testing::UnitTest::GetInstance();
  if (result != 0 || run.skipped_test_count() == 0 || run.skipped_test_count() != run.test_to_run_count())
    return result;
  constexpr int kSkipped = 77;  // ctest's SKIP_RETURN_CODE of this project
  std::printf("skipped: %s\n", ReasonOfSkip().c_str());
  return kSkipped;
}
