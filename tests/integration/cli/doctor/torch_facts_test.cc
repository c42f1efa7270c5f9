// Asking a Python: answers and what goes wrong, with programs that stand in for a Python.

#include "integration/cli/doctor/torch_facts.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace spillway::integration {
namespace {

namespace fs = std::filesystem;

constexpr char kAnswer[] =
    R"({"python": "/p", "torch": "/s/torch", "package": "/s/spillway", "version": "2.11.0+cu130",)"
    R"( "cuda": "13.0", "loads": true})";

TorchFacts Read(const std::string& text) {
  TorchFacts facts;
  ReadAnswer(text, &facts);
  return facts;
}

TEST(ReadAnswerTest, AWholeAnswer) {
  const TorchFacts facts = Read(std::string("printed by a start-up file\n") + kAnswer + "\n");
  EXPECT_EQ(facts.problem, "");
  EXPECT_EQ(facts.version, "2.11.0+cu130");
  EXPECT_EQ(facts.minor, "2.11");
  EXPECT_EQ(facts.cuda, "13.0");
  EXPECT_EQ(facts.package, "/s/spillway");
  EXPECT_TRUE(facts.loads);
}

TEST(ReadAnswerTest, WithoutPyTorch) {
  const TorchFacts facts = Read(R"({"torch": "", "package": "", "loads": false})");
  EXPECT_EQ(facts.problem, "PyTorch is not installed in it");
  EXPECT_FALSE(facts.loads);
}

TEST(ReadAnswerTest, WhatCannotBeRead) {
  for (const char* text : {"", "hello", "{", "[1]", "{\"torch\": 5"})
    EXPECT_NE(Read(text).problem, "") << text;
  EXPECT_EQ(Read(R"({"torch": 5, "loads": "x"})").problem, "PyTorch is not installed in it");
  EXPECT_EQ(Read(R"({"torch": "/t", "version": "nightly"})").problem, "its PyTorch in /t has no version");
}

class AskPythonTest : public ::testing::Test {
 protected:
  AskPythonTest() {
    char name[] = "/tmp/spillway_python_XXXXXX";
    folder_ = ::mkdtemp(name);
  }
  ~AskPythonTest() override { fs::remove_all(folder_); }

  std::string Program(const std::string& name, const std::string& text) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << "#!/bin/sh\n" << text << "\n";
    ::chmod(path.c_str(), 0755);
    return path;
  }

  std::string folder_;
};

TEST_F(AskPythonTest, TheFirstOfThePathIsTaken) {
  Program("python3", std::string("echo '") + kAnswer + "'");
  const TorchFacts facts = AskPython("", "/none:" + folder_ + ":/usr/bin");
  EXPECT_EQ(facts.python, folder_ + "/python3");
  EXPECT_FALSE(facts.named);
  EXPECT_EQ(facts.minor, "2.11");
}

TEST_F(AskPythonTest, NoPythonAtAll) {
  EXPECT_EQ(AskPython("", folder_).problem, "there is no python3 in PATH");
  EXPECT_EQ(AskPython(folder_ + "/none", "").problem, "No such file or directory");
}

TEST_F(AskPythonTest, AProgramThatIsNone) {
  EXPECT_NE(AskPython(Program("fails", "exit 3"), "").problem.find("is it a Python?"), std::string::npos);
  EXPECT_EQ(AskPython(Program("chatters", "echo hello"), "").problem, "its answer cannot be read");
  EXPECT_NE(AskPython(Program("dies", "kill -SEGV $$"), "").problem, "");
}

// As a shell takes it: "python3.11", not a path.
TEST_F(AskPythonTest, ANameIsSearchedInThePath) {
  Program("python3.77", std::string("echo '") + kAnswer + "'");
  const std::string before = std::getenv("PATH");
  ASSERT_EQ(::setenv("PATH", (folder_ + ":" + before).c_str(), 1), 0);
  const TorchFacts facts = AskPython("python3.77", "");
  ::setenv("PATH", before.c_str(), 1);
  EXPECT_EQ(facts.problem, "");
  EXPECT_EQ(facts.minor, "2.11");
}

TEST_F(AskPythonTest, WhatItSaysLastIsTheReason) {
  const TorchFacts facts = AskPython(
      Program("says", "echo first >&2; echo 'ImportError: no libfoo.so' >&2; echo >&2; exit 3"), "");
  EXPECT_EQ(facts.problem, "it ends with exit status 3 and says: ImportError: no libfoo.so");
  const TorchFacts flood =
      AskPython(Program("floods",
                        "i=0; while [ $i -lt 3000 ]; do echo 0123456789012345678901234567890123456789 >&2; "
                        "i=$((i+1)); done; echo last >&2; exit 1"),
                "");
  EXPECT_EQ(flood.problem, "it ends with exit status 1 and says: last");
}

// Else the Python hook of an installation that cannot be loaded ends the child, and its answer is lost.
TEST_F(AskPythonTest, NothingIsRequiredOfIt) {
  ASSERT_EQ(::setenv("SPILLWAY_REQUIRE", "1", 1), 0);
  const TorchFacts facts = AskPython(
      Program("requires", std::string("[ $SPILLWAY_REQUIRE = off ] || exit 2; echo '") + kAnswer + "'"), "");
  EXPECT_STREQ(std::getenv("SPILLWAY_REQUIRE"), "1");
  ::unsetenv("SPILLWAY_REQUIRE");
  EXPECT_EQ(facts.problem, "");
}

// The question itself, by the Python of the machine, with a made-up PyTorch on its path.
TEST_F(AskPythonTest, ARealPythonImportsNothing) {
  fs::create_directories(folder_ + "/site/torch");
  std::ofstream(folder_ + "/site/torch/__init__.py") << "raise SystemExit('imported')\n";
  std::ofstream(folder_ + "/site/torch/version.py")
      << "from typing import Optional\n__version__ = '2.8.0+cu129'\ndebug = False\n"
         "cuda: Optional[str] = '12.9'\n";
  const char* const path = std::getenv("PATH");
  ASSERT_EQ(::setenv("PYTHONPATH", (folder_ + "/site").c_str(), 1), 0);
  TorchFacts facts = AskPython("", path == nullptr ? "/usr/bin" : path);
  ::unsetenv("PYTHONPATH");
  if (facts.problem == "there is no python3 in PATH") GTEST_SKIP() << facts.problem;
  EXPECT_EQ(facts.problem, "");
  EXPECT_EQ(facts.version, "2.8.0+cu129");
  EXPECT_EQ(facts.minor, "2.8");
  EXPECT_EQ(facts.cuda, "12.9");
  EXPECT_FALSE(facts.loads);
}

}  // namespace
}  // namespace spillway::integration
