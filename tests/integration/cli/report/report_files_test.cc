#include "integration/cli/report/report_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>

namespace spillway::integration {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class ReportFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/report[1]*XXXXXX";  // what a pattern would read as one
    folder_ = ::mkdtemp(name);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  void Write(const std::string& name) const { std::ofstream(Path(name)) << "{}"; }

  std::string folder_;
};

TEST_F(ReportFilesTest, NamesOfPagesAndData) {
  EXPECT_TRUE(AsksForPage("a/b.html"));
  EXPECT_FALSE(AsksForPage("a/b.json"));
  EXPECT_EQ(DataPathOf("a/b-%r.html"), "a/b-%r.json");
  EXPECT_EQ(PageOfDataFile("a/b-1.json"), "a/b-1.html");
  EXPECT_EQ(PageOfDataFile("a/b-1.json.gpu2"), "a/b-1.gpu2.html");
}

TEST_F(ReportFilesTest, FindsFilesOfEveryProcessRankAndDevice) {
  for (const char* name : {"x-0-77.json", "x-1-78.json", "x-1-78.json.gpu1", "x-1-78.json.new", "x-a-78.json",
                           "x-1-.json", "x-1-78.html", "y-1-78.json"})
    Write(name);
  EXPECT_THAT(WrittenDataFiles(Path("x-%r-%p.json"), Whose::kEveryRanks, 0),
              ElementsAre(Path("x-0-77.json"), Path("x-1-78.json"), Path("x-1-78.json.gpu1")));
  EXPECT_THAT(WrittenDataFiles(Path("y-1-78.json"), Whose::kEveryRanks, 0), ElementsAre(Path("y-1-78.json")));
  EXPECT_THAT(WrittenDataFiles(Path("z.json"), Whose::kEveryRanks, 0), IsEmpty());
}

// As OutputFile::Expand names them where nothing in the path tells ranks apart.
TEST_F(ReportFilesTest, FindsFilesOfRanksThatWereGivenTheSamePath) {
  for (const char* name : {"x.json", "x.rank1.json", "x.rank12.json.gpu1", "x.rank.json", "x.ranks1.json"})
    Write(name);
  EXPECT_THAT(WrittenDataFiles(Path("x.json"), Whose::kEveryRanks, 0),
              ElementsAre(Path("x.json"), Path("x.rank1.json"), Path("x.rank12.json.gpu1")));
}

TEST_F(ReportFilesTest, FindsFilesOfOneRankAlone) {
  EXPECT_EQ(DataPathOfRank("a/x-%r-%p.json", 1), "a/x-1-%p.json");
  EXPECT_EQ(DataPathOfRank("a/x-%p.json", 1), "a/x-%p.json");
  EXPECT_EQ(DataPathOfRank("a/x.json", 0), "a/x.json");
  EXPECT_EQ(DataPathOfRank("a/x.json", 1), "a/x.rank1.json");
  for (const char* name : {"x.json", "x.rank1.json", "x.rank1.json.gpu1", "x.rank12.json"}) Write(name);
  EXPECT_THAT(WrittenDataFiles(DataPathOfRank(Path("x.json"), 0), Whose::kOneRanks, 0),
              ElementsAre(Path("x.json")));
  EXPECT_THAT(WrittenDataFiles(DataPathOfRank(Path("x.json"), 1), Whose::kOneRanks, 0),
              ElementsAre(Path("x.rank1.json"), Path("x.rank1.json.gpu1")));
}

TEST_F(ReportFilesTest, NamesThePageOfAllRanks) {
  EXPECT_EQ(PageOfRanks("a/x.json"), "a/x.ranks.html");
  EXPECT_EQ(PageOfRanks("a/x-%r.json"), "a/x-ranks.html");
  EXPECT_EQ(PageOfRanks("a/x-%r-%p.json"), "a/x-ranks-all.html");
}

TEST_F(ReportFilesTest, LeavesOutFilesOfEarlierRuns) {
  Write("old.json");
  EXPECT_THAT(WrittenDataFiles(Path("old.json"), Whose::kEveryRanks, std::numeric_limits<long long>::max()),
              IsEmpty());
}

}  // namespace
}  // namespace spillway::integration
