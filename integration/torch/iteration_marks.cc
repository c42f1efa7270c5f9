#include "integration/torch/iteration_marks.h"

#include <ATen/record_function.h>
#include <dlfcn.h>

#include <memory>
#include <string_view>

namespace spillway::integration {
namespace {

// The name's form in torch/optim/optimizer.py: "Optimizer.step#AdamW.step".
constexpr std::string_view kOptimizerEnd = "Optimizer.step#";

// The functions are looked up, not linked: a job that has no libtorch_cpu, or another one, loses the marks
// and nothing else.
using AddCallback = at::CallbackHandle (*)(at::RecordFunctionCallback);
using NameOf = const char* (*)(const at::RecordFunction*);

// Set once, before the callback is added.
const spillway_api* g_api = nullptr;
NameOf g_name_of = nullptr;

std::unique_ptr<at::ObserverContext> OnEnter(const at::RecordFunction&) { return nullptr; }

// Runs on the thread that ran the function, after it.
void OnLeave(const at::RecordFunction& function, at::ObserverContext*) {
  const char* const name = g_name_of(&function);
  if (name != nullptr && std::string_view(name).starts_with(kOptimizerEnd)) g_api->mark_iteration();
}

}  // namespace

void InstallIterationMarks(const spillway_api* api) {
  if (g_api != nullptr || api->mark_iteration == nullptr) return;
  void* const library = ::dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return;
  const auto add = reinterpret_cast<AddCallback>(
      ::dlsym(library, "_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE"));
  g_name_of = reinterpret_cast<NameOf>(::dlsym(library, "_ZNK2at14RecordFunction4nameEv"));
  if (add == nullptr || g_name_of == nullptr) return;
  g_api = api;
  // Only user scopes are recorded, so operators cost nothing.
  add(at::RecordFunctionCallback(&OnEnter, &OnLeave).scopes({at::RecordScope::USER_SCOPE}));
}

}  // namespace spillway::integration
