#include "integration/engine/audit_setup.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace spillway::integration {
namespace {

class AuditSetupTest : public testing::Test {
 protected:
  AuditSetupTest() {
    char folder[] = "/tmp/audit_setup_test_XXXXXX";
    folder_ = mkdtemp(folder);
    settings_.denylist = folder_ + "/list";
  }
  ~AuditSetupTest() override {
    unlink((folder_ + "/list").c_str());  // a test may have named another list in the settings
    rmdir(folder_.c_str());
  }
  void Write(const std::string& text) { std::ofstream(settings_.denylist) << text; }
  std::string Text() const {
    std::ostringstream text;
    text << std::ifstream(settings_.denylist).rdbuf();
    return text.str();
  }

  std::string folder_;
  Settings settings_;
};

TEST_F(AuditSetupTest, ListMustBeReadableAndGood) {
  EXPECT_NE(std::string(ReadDenyLists(settings_).status().message()).find(settings_.denylist),
            std::string::npos);
  Write("good\none two three\n");
  EXPECT_NE(std::string(ReadDenyLists(settings_).status().message()).find("list:2: "), std::string::npos);
  Write("good\n");
  auto list = ReadDenyLists(settings_);
  ASSERT_TRUE(list.ok());
  EXPECT_NE(list->Match("good", ""), nullptr);
  settings_.denylist = folder_;
  EXPECT_FALSE(ReadDenyLists(settings_).ok());
}

TEST_F(AuditSetupTest, TheUsersRowsAreBeforeTheShippedOnes) {
  constexpr char kKernel[] = "_ZN2at4cuda6detail25prepare_grouped_gemm_dataIfE";
  Write("");
  EXPECT_EQ(ReadDenyLists(settings_)->Match(kKernel, "")->action, DenyList::Action::kWriter);
  Write(std::string(kKernel) + "\n");
  EXPECT_EQ(ReadDenyLists(settings_)->Match(kKernel, "")->action, DenyList::Action::kEverything);
}

TEST_F(AuditSetupTest, AuditMakesTheListAndNeedsToWriteIt) {
  settings_.audit = true;
  EXPECT_TRUE(ReadDenyLists(settings_).ok());
  EXPECT_EQ(access(settings_.denylist.c_str(), W_OK), 0);
  const std::string good = settings_.denylist;
  settings_.denylist = folder_ + "/missing/list";
  EXPECT_FALSE(ReadDenyLists(settings_).ok());
  settings_.denylist = good;
}

TEST_F(AuditSetupTest, AppendsOneLineForEachKernel) {
  Write("# by hand, without an end of line");
  const Auditor::Kernel first = {"_Z3foov", "foo()", "libfoo.so", 12};
  const Auditor::Kernel second = {"bar", "bar", "", 3};
  const std::string& path = settings_.denylist;
  EXPECT_TRUE(AppendToDenyList(path, first).value());
  EXPECT_FALSE(AppendToDenyList(path, first).value());
  EXPECT_TRUE(AppendToDenyList(path, second).value());
  EXPECT_EQ(Text(),
            "# by hand, without an end of line\n"
            "_Z3foov libfoo.so  # audit, launch 12: foo()\n"
            "bar  # audit, launch 3: bar\n");
  EXPECT_FALSE(AppendToDenyList(folder_ + "/missing/list", first).ok());
}

}  // namespace
}  // namespace spillway::integration
