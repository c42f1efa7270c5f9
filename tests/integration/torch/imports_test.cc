// Calls of one library's function, led elsewhere in libraries that were linked in every way that there is.

#include "integration/torch/imports.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace spillway::integration {
namespace {

using Function = int (*)(int);

int Replacement(int value) { return -value; }

class Library {
 public:
  explicit Library(const std::string& name, int flags = RTLD_NOW | RTLD_LOCAL)
      : handle_(::dlopen((std::string(IMPORTS_DIRECTORY "/libimports_") + name + ".so").c_str(), flags)) {
    EXPECT_NE(handle_, nullptr) << ::dlerror();
  }
  ~Library() { Close(); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  void Close() {
    if (handle_ != nullptr) ::dlclose(handle_);
    handle_ = nullptr;
  }
  Function Find(const char* name) const { return reinterpret_cast<Function>(::dlsym(handle_, name)); }
  int Call(int value) const { return Find("call")(value); }

 private:
  void* handle_;
};

void* AddressOf(Function function) { return reinterpret_cast<void*>(function); }

// The rights of the page at `address`, as "r--p".
std::string RightsAt(const void* address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    char rights[5] = "";
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, rights) != 3) continue;
    const auto at = reinterpret_cast<uintptr_t>(address);
    if (at >= begin && at < end) return rights;
  }
  return "";
}

// doubled(x) is 2x; every library's call(x) is doubled(x) + 1.
class ImportsTest : public ::testing::Test {
 protected:
  ImportsTest()
      : home_("home"),
        original_(home_.Find("doubled")),
        imports_(AddressOf(original_), AddressOf(&Replacement)) {}

  Library home_;  // stays open: the others need it by name
  const Function original_;
  ImportedFunction imports_;
};

TEST_F(ImportsTest, KnowsTheNameByTheAddress) {
  EXPECT_EQ(imports_.name(), "doubled");
  EXPECT_EQ(ImportedFunction(AddressOf(&Replacement), nullptr).name(), "");
  EXPECT_EQ(ImportedFunction(AddressOf(&Replacement), nullptr).Redirect(), 0u);
}

TEST_F(ImportsTest, ReachesEveryWayOfLinking) {
  for (const char* name : {"lazy", "now", "noplt"}) {
    SCOPED_TRACE(name);
    Library library(name);
    EXPECT_EQ(library.Call(20), 41);
    const size_t before = imports_.Redirect();
    EXPECT_GE(before, 1u);
    EXPECT_EQ(library.Call(20), -19);
    EXPECT_EQ(imports_.Redirect(), before);
    EXPECT_EQ(library.Call(20), -19);
    EXPECT_EQ(original_(20), 40);  // by address, nothing has changed
  }
}

TEST_F(ImportsTest, ReachesACallThatIsNotBoundYet) {
  Library library("lazy", RTLD_LAZY | RTLD_LOCAL);
  EXPECT_EQ(imports_.Redirect(), 1u);
  EXPECT_EQ(library.Call(20), -19);
}

TEST_F(ImportsTest, ReachesTheLibraryThatHasTheFunction) {
  Library own("own");
  ImportedFunction imports(AddressOf(own.Find("halved")), AddressOf(&Replacement));
  EXPECT_EQ(own.Call(20), 11);
  EXPECT_EQ(imports.Redirect(), 1u);
  EXPECT_EQ(own.Call(20), -19);
}

TEST_F(ImportsTest, LibrariesComeAndGo) {
  EXPECT_EQ(imports_.Redirect(), 0u);
  for (int round = 0; round < 3; ++round) {
    Library lazy("lazy");
    EXPECT_EQ(imports_.Redirect(), 1u);
    Library now("now");
    EXPECT_EQ(now.Call(20), 41);
    EXPECT_EQ(imports_.Redirect(), 2u);
    EXPECT_EQ(now.Call(20), -19);
    lazy.Close();
    EXPECT_EQ(imports_.Redirect(), 1u);
  }
}

TEST_F(ImportsTest, WhatSomebodyElseHasChangedStays) {
  Library library("lazy");
  static constexpr auto kOther = +[](int value) { return value * 100; };
  ImportedFunction others(AddressOf(original_), AddressOf(kOther));
  EXPECT_EQ(others.Redirect(), 1u);
  EXPECT_EQ(imports_.Redirect(), 0u);
  EXPECT_EQ(library.Call(2), 201);
}

TEST_F(ImportsTest, APageThatMayNotBeWrittenMayNotBeWrittenAfterwards) {
  Library library("now");
  // The entry lies on the page of a variable that is relocated at the start, too: both are read-only after that.
  auto* const relocated = reinterpret_cast<const void* const*>(library.Find("relocated"));
  ASSERT_EQ(RightsAt(relocated), "r--p");
  EXPECT_EQ(imports_.Redirect(), 1u);
  EXPECT_EQ(library.Call(20), -19);
  EXPECT_EQ(RightsAt(relocated), "r--p");
}

TEST_F(ImportsTest, ThreadsCallWhileLibrariesAreLoaded) {
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      while (!done.load()) imports_.Redirect();
    });
  }
  for (int round = 0; round < 200; ++round) {
    Library lazy("lazy", RTLD_LAZY | RTLD_LOCAL);
    Library now("now");
    for (int call = 0; call < 3; ++call) {
      for (const int value : {lazy.Call(20), now.Call(20)}) EXPECT_TRUE(value == 41 || value == -19) << value;
    }
    EXPECT_EQ(imports_.Redirect(), 2u);
    EXPECT_EQ(lazy.Call(20), -19);
    EXPECT_EQ(now.Call(20), -19);
  }
  done.store(true);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace spillway::integration
