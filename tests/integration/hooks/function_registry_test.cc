#include "integration/hooks/function_registry.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>

namespace spillway::integration {
namespace {

void* Handle(uintptr_t number) { return reinterpret_cast<void*>(0x1000 + number * 64); }

// Functions with parameters of the sizes that a test gives them.
class FakeQueries : public FunctionQueries {
 public:
  struct Function {
    std::string name;
    std::vector<size_t> sizes;
    void* owner = nullptr;
    bool kernel = false;
  };
  std::map<void*, Function> functions;
  bool no_layouts = false;
  mutable std::atomic<int> asked{0};

  Answer ParamSize(void* handle, bool is_kernel, size_t index, size_t* bytes) const override {
    ++asked;
    const auto it = functions.find(handle);
    if (no_layouts || it == functions.end() || it->second.kernel != is_kernel) return Answer::kFailed;
    if (index >= it->second.sizes.size()) return Answer::kPastEnd;
    *bytes = it->second.sizes[index];
    return Answer::kOk;
  }
  bool Name(void* handle, bool is_kernel, std::string* name) const override {
    const auto it = functions.find(handle);
    if (it == functions.end() || it->second.name.empty() || it->second.kernel != is_kernel) return false;
    *name = it->second.name;
    return true;
  }
  void* Owner(void* handle, bool) const override {
    const auto it = functions.find(handle);
    return it == functions.end() ? nullptr : it->second.owner;
  }
};

TEST(FunctionRegistryTest, AsksOnceAndKeeps) {
  FakeQueries queries;
  queries.functions[Handle(1)] = {"add", {8, 4, 8}, Handle(100)};
  FunctionRegistry registry(&queries);
  const FunctionInfo* info = registry.Find(Handle(1));
  EXPECT_TRUE(info->understood);
  EXPECT_EQ(info->layout.count(), 3u);
  EXPECT_EQ(info->layout.entries().size(), 2u);
  EXPECT_EQ(info->name, "add");
  const int asked = queries.asked;
  EXPECT_EQ(registry.Find(Handle(1)), info);
  EXPECT_EQ(queries.asked, asked);
}

TEST(FunctionRegistryTest, AFunctionWithoutParametersIsUnderstood) {
  FakeQueries queries;
  queries.functions[Handle(1)] = {"none", {}, nullptr};
  FunctionRegistry registry(&queries);
  EXPECT_TRUE(registry.Find(Handle(1))->understood);
  EXPECT_EQ(registry.Find(Handle(1))->layout.count(), 0u);
}

TEST(FunctionRegistryTest, WithoutLayoutsNothingIsUnderstood) {
  FakeQueries queries;
  queries.functions[Handle(1)] = {"add", {8}, nullptr};
  queries.no_layouts = true;
  FunctionRegistry registry(&queries);
  EXPECT_FALSE(registry.Find(Handle(1))->understood);
}

TEST(FunctionRegistryTest, TagsAreThoseOfNames) {
  FakeQueries queries;
  queries.functions[Handle(1)] = {"add", {8}, nullptr};
  queries.functions[Handle(2)] = {"add", {8, 8}, nullptr};
  queries.functions[Handle(3)] = {"mul", {8}, nullptr};
  queries.functions[Handle(4)] = {"", {8}, nullptr};
  queries.functions[Handle(5)] = {"", {8}, nullptr};
  FunctionRegistry registry(&queries);
  EXPECT_EQ(registry.Find(Handle(1))->tag, registry.Find(Handle(2))->tag);
  EXPECT_NE(registry.Find(Handle(1)), registry.Find(Handle(2)));
  EXPECT_NE(registry.Find(Handle(1))->tag, registry.Find(Handle(3))->tag);
  EXPECT_NE(registry.Find(Handle(4))->tag, registry.Find(Handle(5))->tag);
}

TEST(FunctionRegistryTest, KernelHandlesAreAskedAsKernels) {
  FakeQueries queries;
  queries.functions[Handle(1)] = {"kernel", {8, 8}, nullptr, true};
  queries.functions[Handle(2)] = {"unnoted", {8, 8, 8}, nullptr, true};
  FunctionRegistry registry(&queries);
  registry.NoteKernel(Handle(1));
  EXPECT_EQ(registry.Find(Handle(1))->layout.count(), 2u);
  // A kernel whose origin escaped us is found by asking the other way, too.
  EXPECT_EQ(registry.Find(Handle(2))->layout.count(), 3u);
  EXPECT_EQ(registry.Find(Handle(2))->name, "unnoted");
}

TEST(FunctionRegistryTest, UnloadsDropWhatTheyEnd) {
  FakeQueries queries;
  queries.functions[Handle(1)] = {"a", {8}, Handle(100)};
  queries.functions[Handle(2)] = {"b", {8}, Handle(101)};
  queries.functions[Handle(3)] = {"c", {8}, nullptr};
  FunctionRegistry registry(&queries);
  for (int i = 1; i <= 3; ++i) registry.Find(Handle(i));
  // The handle of 1 comes back as another function; 3 has no known module, so it is asked again, too.
  registry.DropModule(Handle(100));
  queries.functions[Handle(1)] = {"other", {8, 8, 8}, Handle(102)};
  queries.functions[Handle(2)].name = "must not be asked";
  EXPECT_EQ(registry.Find(Handle(1))->name, "other");
  EXPECT_EQ(registry.Find(Handle(1))->layout.count(), 3u);
  EXPECT_EQ(registry.Find(Handle(2))->name, "b");
  registry.DropAll();
  EXPECT_EQ(registry.Find(Handle(2))->name, "must not be asked");
}

TEST(FunctionRegistryTest, LoadingTheSameAgainAddsNothing) {
  FakeQueries queries;
  queries.functions[Handle(1)] = {"a", {8, 16}, Handle(100)};
  FunctionRegistry registry(&queries);
  const FunctionInfo* const first = registry.Find(Handle(1));
  for (int i = 0; i < 1000; ++i) {
    registry.DropModule(Handle(100));
    ASSERT_EQ(registry.Find(Handle(1)), first);
  }
}

TEST(FunctionRegistryTest, ThreadsFindTheSameWhileTheTableGrowsAndModulesGo) {
  constexpr int kFunctions = 6000;
  FakeQueries queries;
  for (int i = 1; i <= kFunctions; ++i) {
    queries.functions[Handle(i)] = {"f" + std::to_string(i), std::vector<size_t>(i % 7, 8),
                                    Handle(90000 + i % 10)};
  }
  FunctionRegistry registry(&queries);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 4; ++round) {
        for (int i = 1; i <= kFunctions; ++i) {
          const int number = 1 + (i * (t + 3)) % kFunctions;
          const FunctionInfo* const info = registry.Find(Handle(number));
          if (!info->understood || info->layout.count() != static_cast<uint32_t>(number % 7)) ++wrong;
        }
      }
    });
  }
  threads.emplace_back([&] {
    for (int i = 0; i < 50; ++i) registry.DropModule(Handle(90000 + i % 10));
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(ModuleOriginsTest, KeepsFileNamesOnceEnabled) {
  ModuleOrigins origins;
  const auto module = reinterpret_cast<CUmodule>(0x10);
  const auto library = reinterpret_cast<CUlibrary>(0x20);
  origins.NoteFile(module, "/a/early.cubin");
  EXPECT_EQ(origins.Find(module), "");
  origins.Enable();
  origins.NoteFile(module, "/a/file.cubin");
  static const int image = 0;  // lies in this program
  origins.NoteImage(library, &image, nullptr);
  EXPECT_EQ(origins.Find(module), "file.cubin");
  EXPECT_NE(origins.Find(library), "");
  EXPECT_EQ(origins.Libraries(), std::vector<CUlibrary>{library});
}

TEST(DriverFunctionQueriesTest, AsksWhatTheDriverHas) {
  RealTable real;
  ModuleOrigins origins;
  const DriverFunctionQueries queries(&real, &origins);
  size_t bytes = 0;
  std::string name;
  EXPECT_EQ(queries.ParamSize(Handle(1), false, 0, &bytes), FunctionQueries::Answer::kFailed);
  EXPECT_FALSE(queries.Name(Handle(1), false, &name));
  EXPECT_EQ(queries.Owner(Handle(1), true), nullptr);
  const decltype(&::cuFuncGetParamInfo) sizes = [](CUfunction, size_t index, size_t*, size_t* size) {
    *size = 8;
    return index == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  };
  const decltype(&::cuFuncGetName) names = [](const char** text, CUfunction) {
    *text = "kernel";
    return CUDA_SUCCESS;
  };
  const decltype(&::cuFuncGetModule) modules = [](CUmodule* module, CUfunction) {
    *module = reinterpret_cast<CUmodule>(0x10);
    return CUDA_SUCCESS;
  };
  real.Set(Row::cuFuncGetParamInfo, reinterpret_cast<void*>(sizes));
  real.Set(Row::cuFuncGetName, reinterpret_cast<void*>(names));
  real.Set(Row::cuFuncGetModule, reinterpret_cast<void*>(modules));
  EXPECT_EQ(queries.ParamSize(Handle(1), false, 0, &bytes), FunctionQueries::Answer::kOk);
  EXPECT_EQ(bytes, 8u);
  EXPECT_EQ(queries.ParamSize(Handle(1), false, 1, &bytes), FunctionQueries::Answer::kPastEnd);
  EXPECT_TRUE(queries.Name(Handle(1), false, &name));
  EXPECT_EQ(name, "kernel");
  EXPECT_EQ(queries.LibraryOf(queries.Owner(Handle(1), false)), "") << "nobody wants to know";
  origins.Enable();
  origins.NoteFile(reinterpret_cast<CUmodule>(0x10), "of.cubin");
  EXPECT_EQ(queries.LibraryOf(queries.Owner(Handle(1), false)), "of.cubin");
}

}  // namespace
}  // namespace spillway::integration
