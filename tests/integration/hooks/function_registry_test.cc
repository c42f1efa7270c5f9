#include "integration/hooks/function_registry.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>

#include "tests/integration/hooks/synthetic_handles.h"

namespace spillway::integration {
namespace {

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
  Answer layouts = Answer::kOk;  // what it answers instead of one
  mutable std::atomic<int> asked{0};
  mutable std::atomic<int> asked_wrongly{0};  // for the other kind
  mutable std::atomic<int> owners_asked{0};

  Answer ParamSize(void* handle, HandleKind kind, size_t index, size_t* bytes) const override {
    ++asked;
    const auto it = functions.find(handle);
    if (it != functions.end() && it->second.kernel != (kind == HandleKind::kKernel)) ++asked_wrongly;
    if (layouts != Answer::kOk) return layouts;
    if (it == functions.end()) return Answer::kFailed;
    if (index >= it->second.sizes.size()) return Answer::kNone;
    *bytes = it->second.sizes[index];
    return Answer::kOk;
  }
  Answer Name(void* handle, HandleKind kind, std::string* name) const override {
    const auto it = functions.find(handle);
    if (it == functions.end() || it->second.name.empty()) return Answer::kNone;
    *name = it->second.name;
    return Answer::kOk;
  }
  const void* Owner(void* handle, HandleKind kind) const override {
    ++owners_asked;
    const auto it = functions.find(handle);
    if (it != functions.end() && it->second.kernel != (kind == HandleKind::kKernel)) ++asked_wrongly;
    return it == functions.end() ? nullptr : it->second.owner;
  }
};

// What the driver has given out, as the hooks note it.
void NoteAll(FunctionRegistry* registry, const FakeQueries& queries) {
  for (const auto& [handle, function] : queries.functions) {
    if (function.kernel) {
      registry->RecordKernel(static_cast<CUkernel>(handle), static_cast<CUlibrary>(function.owner));
    } else {
      registry->RecordFunction(static_cast<CUfunction>(handle), static_cast<CUmodule>(function.owner));
    }
  }
}

TEST(FunctionRegistryTest, AsksOnceAndKeeps) {
  FakeQueries queries;
  queries.functions[Handle(1)] = {"add", {8, 4, 8}, Handle(100)};
  FunctionRegistry registry(&queries);
  NoteAll(&registry, queries);
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
  NoteAll(&registry, queries);
  EXPECT_TRUE(registry.Find(Handle(1))->understood);
  EXPECT_EQ(registry.Find(Handle(1))->layout.count(), 0u);
}

TEST(FunctionRegistryTest, WithoutLayoutsNothingIsUnderstood) {
  FakeQueries queries;
  queries.functions[Handle(1)] = {"add", {8}, nullptr};
  queries.layouts = FunctionQueries::Answer::kNoMemory;
  FunctionRegistry registry(&queries);
  NoteAll(&registry, queries);
  EXPECT_FALSE(registry.Find(Handle(1))->understood);
  EXPECT_TRUE(registry.Find(Handle(1))->no_memory);
  queries.layouts = FunctionQueries::Answer::kFailed;
  EXPECT_TRUE(registry.Find(Handle(1))->unanswered);
  EXPECT_FALSE(registry.Find(Handle(1))->no_memory);
  queries.layouts = FunctionQueries::Answer::kOk;
  EXPECT_TRUE(registry.Find(Handle(1))->plain) << "it is asked until it answers";
}

// It may be one of the deny list, or of NCCL's.
TEST(FunctionRegistryTest, AFunctionWithoutANameIsNotUnderstood) {
  FakeQueries queries;
  queries.functions[Handle(1)] = {"", {8}, nullptr};
  FunctionRegistry registry(&queries);
  NoteAll(&registry, queries);
  EXPECT_FALSE(registry.Find(Handle(1))->understood);
  EXPECT_FALSE(registry.Find(Handle(1))->plain);
}

TEST(FunctionRegistryTest, TagsAreThoseOfNames) {
  FakeQueries queries;
  queries.functions[Handle(1)] = {"add", {8}, nullptr};
  queries.functions[Handle(2)] = {"add", {8, 8}, nullptr};
  queries.functions[Handle(3)] = {"mul", {8}, nullptr};
  queries.functions[Handle(4)] = {"", {8}, nullptr};
  queries.functions[Handle(5)] = {"", {8}, nullptr};
  FunctionRegistry registry(&queries);
  NoteAll(&registry, queries);
  EXPECT_EQ(registry.Find(Handle(1))->tag, registry.Find(Handle(2))->tag);
  EXPECT_NE(registry.Find(Handle(1)), registry.Find(Handle(2)));
  EXPECT_NE(registry.Find(Handle(1))->tag, registry.Find(Handle(3))->tag);
  EXPECT_NE(registry.Find(Handle(4))->tag, registry.Find(Handle(5))->tag);
}

TEST(FunctionRegistryTest, HandlesAreAskedForTheirOwnKindOnly) {
  FakeQueries queries;
  queries.functions[Handle(1)] = {"kernel", {8, 8}, Handle(100), true};
  queries.functions[Handle(2)] = {"function", {8}, Handle(101), false};
  queries.functions[Handle(3)] = {"without", {}, Handle(101), false};
  FunctionRegistry registry(&queries);
  NoteAll(&registry, queries);
  EXPECT_EQ(registry.Find(Handle(1))->layout.count(), 2u);
  EXPECT_EQ(registry.Find(Handle(2))->layout.count(), 1u);
  EXPECT_EQ(registry.Find(Handle(3))->layout.count(), 0u);
  EXPECT_EQ(queries.asked_wrongly, 0);
  // A question that fails is no reason to ask the other way.
  queries.layouts = FunctionQueries::Answer::kFailed;
  registry.Forget(Handle(100));
  NoteAll(&registry, queries);
  EXPECT_FALSE(registry.Find(Handle(1))->understood);
  EXPECT_FALSE(registry.Find(Handle(1))->of_unknown_origin);
  EXPECT_EQ(queries.asked_wrongly, 0);
}

TEST(FunctionRegistryTest, OfAnUnseenHandleNothingIsAsked) {
  FakeQueries queries;
  queries.functions[Handle(1)] = {"kernel", {8, 8, 8}, nullptr, true};
  FunctionRegistry registry(&queries);
  EXPECT_TRUE(registry.Find(Handle(1))->of_unknown_origin);
  EXPECT_FALSE(registry.Find(Handle(1))->understood);
  EXPECT_FALSE(registry.Find(Handle(1))->plain);
  EXPECT_EQ(queries.asked, 0);
  NoteAll(&registry, queries);  // and then the driver gives it out
  EXPECT_TRUE(registry.Find(Handle(1))->understood);
  EXPECT_EQ(registry.Find(Handle(1))->name, "kernel");
}

TEST(FunctionRegistryTest, AHandleThatIsGivenOutAgainKeepsWhatIsKnown) {
  FakeQueries queries;
  queries.functions[Handle(1)] = {"a", {8}, Handle(100)};
  FunctionRegistry registry(&queries);
  NoteAll(&registry, queries);
  registry.Find(Handle(1));
  const int asked = queries.asked;
  NoteAll(&registry, queries);
  registry.Find(Handle(1));
  EXPECT_EQ(queries.asked, asked);
  // As another kind it is another handle, whatever ended unseen.
  queries.functions[Handle(1)] = {"b", {8, 8}, Handle(101), true};
  NoteAll(&registry, queries);
  EXPECT_EQ(registry.Find(Handle(1))->name, "b");
  EXPECT_EQ(queries.asked_wrongly, 0);
}

TEST(FunctionRegistryTest, UnloadsDropWhatTheyEnd) {
  FakeQueries queries;
  queries.functions[Handle(1)] = {"a", {8}, Handle(100)};
  queries.functions[Handle(2)] = {"b", {8}, Handle(101)};
  FunctionRegistry registry(&queries);
  NoteAll(&registry, queries);
  for (int i = 1; i <= 2; ++i) registry.Find(Handle(i));
  registry.Forget(Handle(100));
  queries.functions[Handle(2)].name = "must not be asked";
  EXPECT_TRUE(registry.Find(Handle(1))->of_unknown_origin) << "nobody has given it out since";
  queries.functions[Handle(1)] = {"other", {8, 8, 8}, Handle(102)};
  registry.RecordFunction(static_cast<CUfunction>(Handle(1)), static_cast<CUmodule>(Handle(102)));
  EXPECT_EQ(registry.Find(Handle(1))->name, "other");
  EXPECT_EQ(registry.Find(Handle(1))->layout.count(), 3u);
  EXPECT_EQ(registry.Find(Handle(2))->name, "b");
}

TEST(FunctionRegistryTest, WhatCameOfALibraryEndsWithIt) {
  FakeQueries queries;
  queries.functions[Handle(1)] = {"kernel", {8}, Handle(100), true};
  queries.functions[Handle(2)] = {"of_kernel", {8}, nullptr};
  queries.functions[Handle(3)] = {"of_module", {8}, nullptr};
  FunctionRegistry registry(&queries);
  const auto library = static_cast<CUlibrary>(Handle(100));
  const auto module = static_cast<CUmodule>(Handle(101));
  const auto kernel = static_cast<CUkernel>(Handle(1));
  registry.RecordKernel(kernel, library);
  registry.RecordFunctionOf(static_cast<CUfunction>(Handle(2)), kernel);
  registry.RecordModuleOf(module, library);
  registry.RecordFunction(static_cast<CUfunction>(Handle(3)), module);
  for (int i = 1; i <= 3; ++i) EXPECT_TRUE(registry.Find(Handle(i))->understood);
  registry.Forget(library);
  for (int i = 1; i <= 3; ++i) EXPECT_TRUE(registry.Find(Handle(i))->of_unknown_origin) << i;
  EXPECT_EQ(queries.owners_asked, 0) << "the calls themselves say it";
}

TEST(FunctionRegistryTest, AStructsMemberTellsTheKindOfWhatIsNew) {
  FakeQueries queries;
  queries.functions[Handle(1)] = {"node", {8}, Handle(100), true};
  queries.functions[Handle(2)] = {"known", {8}, Handle(101)};
  FunctionRegistry registry(&queries);
  registry.RecordNamed(Handle(1), HandleKind::kKernel);
  registry.RecordNamed(Handle(1), HandleKind::kKernel);
  EXPECT_EQ(queries.owners_asked, 1);
  EXPECT_TRUE(registry.Find(Handle(1))->understood);
  registry.Forget(Handle(100));
  EXPECT_TRUE(registry.Find(Handle(1))->of_unknown_origin);
  registry.RecordFunction(static_cast<CUfunction>(Handle(2)), static_cast<CUmodule>(Handle(101)));
  registry.RecordNamed(Handle(2), HandleKind::kKernel);  // what gave it out knows better
  EXPECT_TRUE(registry.Find(Handle(2))->understood);
  EXPECT_EQ(queries.asked_wrongly, 0);
}

// Of some owners no call shows the end: another kernel may have the handle, and nothing else has changed.
TEST(FunctionRegistryTest, AHandleThatIsGivenOutAnewIsAskedAnewUnlessItsOwnerIsKnown) {
  FakeQueries queries;
  FunctionRegistry registry(&queries);
  const auto function = static_cast<CUfunction>(Handle(1));
  const auto parameters = [&](size_t count) {
    queries.functions[Handle(1)] = {"f", std::vector<size_t>(count, 8), Handle(100)};
  };
  parameters(1);
  registry.RecordFunctionOf(function, static_cast<CUkernel>(Handle(2)));  // a kernel that nobody has seen
  EXPECT_EQ(registry.Find(function)->layout.count(), 1u);
  parameters(2);
  registry.RecordFunctionOf(function, static_cast<CUkernel>(Handle(3)));
  EXPECT_EQ(registry.Find(function)->layout.count(), 2u);
  parameters(3);
  registry.RecordGiven(function, HandleKind::kFunction);
  EXPECT_EQ(registry.Find(function)->layout.count(), 3u);
  parameters(4);
  registry.RecordGiven(function, HandleKind::kFunction);  // of a module whose handle is the same, too
  EXPECT_EQ(registry.Find(function)->layout.count(), 4u);
  queries.asked = 0;
  registry.RecordFunction(function, static_cast<CUmodule>(Handle(100)));
  EXPECT_EQ(registry.Find(function)->layout.count(), 4u);
  EXPECT_EQ(queries.asked, 0) << "nothing is new about it";
  registry.Forget(Handle(100));
  EXPECT_TRUE(registry.Find(function)->of_unknown_origin);
}

// The older struct of a node has no member for a kernel: a driver may put one where a function is expected.
TEST(FunctionRegistryTest, WhereAStructAndTheCallThatGaveItOutDifferNothingIsAsked) {
  for (const bool kernel : {true, false}) {
    FakeQueries queries;
    queries.functions[Handle(1)] = {"node", {8}, Handle(100), kernel};
    FunctionRegistry registry(&queries);
    NoteAll(&registry, queries);
    EXPECT_TRUE(registry.Find(Handle(1))->understood);
    registry.RecordGiven(Handle(1), kernel ? HandleKind::kFunction : HandleKind::kKernel);
    EXPECT_TRUE(registry.Find(Handle(1))->of_unknown_origin);
    EXPECT_EQ(queries.asked_wrongly, 0);
    EXPECT_EQ(queries.owners_asked, 0);
    NoteAll(&registry, queries);
    EXPECT_TRUE(registry.Find(Handle(1))->understood) << "given out anew";
  }
}

// A library outlives the context: the next one may give another of its kernels the function that the first had.
TEST(FunctionRegistryTest, WhatALibraryHadInAContextThatHasEndedIsAskedAnew) {
  FakeQueries queries;
  FunctionRegistry registry(&queries);
  const auto function = static_cast<CUfunction>(Handle(1));
  const auto library = static_cast<CUlibrary>(Handle(100));
  const auto module = static_cast<CUmodule>(Handle(101));
  const auto parameters = [&](size_t count) {
    queries.functions[Handle(1)] = {"f", std::vector<size_t>(count, 8), library};
  };
  for (const int kernel : {2, 3}) registry.RecordKernel(static_cast<CUkernel>(Handle(kernel)), library);
  parameters(1);
  registry.RecordFunctionOf(function, static_cast<CUkernel>(Handle(2)));
  EXPECT_EQ(registry.Find(function)->layout.count(), 1u);
  registry.RecordContextEnd();
  parameters(2);
  registry.RecordFunctionOf(function, static_cast<CUkernel>(Handle(3)));
  EXPECT_EQ(registry.Find(function)->layout.count(), 2u);
  registry.RecordContextEnd();
  parameters(3);
  registry.RecordModuleOf(module, library);
  registry.RecordFunction(function, module);
  EXPECT_EQ(registry.Find(function)->layout.count(), 3u);
  queries.asked = 0;
  registry.RecordFunction(function, module);
  registry.Find(function);
  EXPECT_EQ(queries.asked, 0) << "nothing is new about it";
}

TEST(FunctionRegistryTest, LoadingTheSameAgainAddsNothing) {
  FakeQueries queries;
  queries.functions[Handle(1)] = {"a", {8, 16}, Handle(100)};
  FunctionRegistry registry(&queries);
  NoteAll(&registry, queries);
  const FunctionInfo* const first = registry.Find(Handle(1));
  for (int i = 0; i < 1000; ++i) {
    registry.Forget(Handle(100));
    NoteAll(&registry, queries);
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
  NoteAll(&registry, queries);
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
    for (int i = 0; i < 50; ++i) {  // noted anew as another module's, which drops what was learnt
      for (int n = 1; n <= kFunctions; n += 7)
        registry.RecordFunction(static_cast<CUfunction>(Handle(n)), static_cast<CUmodule>(Handle(80000 + i)));
    }
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(ModuleOriginsTest, KeepsFileNamesOnceEnabled) {
  ModuleOrigins origins;
  const auto module = reinterpret_cast<CUmodule>(0x10);
  const auto library = reinterpret_cast<CUlibrary>(0x20);
  origins.RecordFile(module, "/a/early.cubin");
  EXPECT_EQ(origins.Find(module), "");
  origins.Enable();
  origins.RecordFile(module, "/a/file.cubin");
  static const int image = 0;  // lies in this program
  origins.RecordImage(library, &image, nullptr);
  EXPECT_EQ(origins.Find(module), "file.cubin");
  EXPECT_NE(origins.Find(library), "");
}

TEST(DriverFunctionQueriesTest, AsksWhatTheDriverHas) {
  RealTable real;
  ModuleOrigins origins;
  const DriverFunctionQueries queries(&real, &origins);
  size_t bytes = 0;
  std::string name;
  EXPECT_EQ(queries.ParamSize(Handle(1), HandleKind::kFunction, 0, &bytes), FunctionQueries::Answer::kFailed);
  EXPECT_EQ(queries.Name(Handle(1), HandleKind::kFunction, &name), FunctionQueries::Answer::kFailed);
  EXPECT_EQ(queries.Owner(Handle(1), HandleKind::kKernel), nullptr);
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
  EXPECT_EQ(queries.ParamSize(Handle(1), HandleKind::kFunction, 0, &bytes), FunctionQueries::Answer::kOk);
  EXPECT_EQ(bytes, 8u);
  EXPECT_EQ(queries.ParamSize(Handle(1), HandleKind::kFunction, 1, &bytes), FunctionQueries::Answer::kNone);
  EXPECT_EQ(queries.Name(Handle(1), HandleKind::kFunction, &name), FunctionQueries::Answer::kOk);
  EXPECT_EQ(name, "kernel");
  EXPECT_EQ(queries.LibraryOf(queries.Owner(Handle(1), HandleKind::kFunction)), "") << "nobody wants to know";
  origins.Enable();
  origins.RecordFile(reinterpret_cast<CUmodule>(0x10), "of.cubin");
  EXPECT_EQ(queries.LibraryOf(queries.Owner(Handle(1), HandleKind::kFunction)), "of.cubin");
}

}  // namespace
}  // namespace spillway::integration
