// Questions about kernels with handles that they are not meant for, and what a tensor map looks like.

#include <cstring>
#include <functional>
#include <utility>

#include "tests/gpu/facts/facts.h"
#include "tests/gpu/kernels.ptx.h"

namespace spillway::gpu {
namespace {

// A module's function and a library's kernel of the same name, and the same of images that are unloaded.
struct HandlesOfAllKinds {
  CUfunction function = nullptr;
  CUkernel kernel = nullptr;
  CUfunction dead_function = nullptr;
  CUkernel dead_kernel = nullptr;
};

HandlesOfAllKinds Make() {
  const Gpu& gpu = Gpu::Get();
  HandlesOfAllKinds made;
  const auto load = Find<decltype(&::cuModuleLoadData)>("cuModuleLoadData");
  const auto get = Find<decltype(&::cuModuleGetFunction)>("cuModuleGetFunction");
  const auto unload = Find<decltype(&::cuModuleUnload)>("cuModuleUnload");
  const auto load_library = Find<decltype(&::cuLibraryLoadData)>("cuLibraryLoadData");
  const auto get_kernel = Find<decltype(&::cuLibraryGetKernel)>("cuLibraryGetKernel");
  const auto unload_library = Find<decltype(&::cuLibraryUnload)>("cuLibraryUnload");
  for (CUfunction* into : {&made.dead_function, &made.function}) {
    CUmodule module = nullptr;
    gpu.Must(load(&module, kKernels), "cuModuleLoadData");
    gpu.Must(get(into, module, "spillway_fill"), "cuModuleGetFunction");
    if (into == &made.dead_function) gpu.Must(unload(module), "cuModuleUnload");
  }
  if (load_library == nullptr) return made;  // before CUDA 12.0
  for (CUkernel* into : {&made.dead_kernel, &made.kernel}) {
    CUlibrary library = nullptr;
    gpu.Must(load_library(&library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0), "cuLibraryLoadData");
    gpu.Must(get_kernel(into, library, "spillway_fill"), "cuLibraryGetKernel");
    if (into == &made.dead_kernel) gpu.Must(unload_library(library), "cuLibraryUnload");
  }
  return made;
}

// One question: what it answers with a handle of that value.
using Question = std::function<Json(void* handle)>;

Json Answer(CUresult result, const Json& value) {
  Json answer = {{"result", static_cast<int>(result)}};
  if (result == CUDA_SUCCESS) answer["value"] = value;
  return answer;
}

std::vector<std::pair<std::string, Question>> Questions() {
  const auto name_of = [](auto ask, auto handle) {
    const char* name = nullptr;
    const CUresult result = ask(&name, handle);
    return Answer(result, name == nullptr ? "null" : name);
  };
  const auto sizes_of = [](auto ask, auto handle) {
    size_t offset = 0, size = 0, index = 0;
    Json sizes = Json::array();
    CUresult result = CUDA_SUCCESS;
    for (; index < 16 && (result = ask(handle, index, &offset, &size)) == CUDA_SUCCESS; ++index)
      sizes.push_back(size);
    return Json{{"result", static_cast<int>(result)}, {"sizes", sizes}};
  };
  return {
      {"cuFuncGetName",
       [=](void* handle) {
         return name_of(Find<decltype(&::cuFuncGetName)>("cuFuncGetName"), static_cast<CUfunction>(handle));
       }},
      {"cuKernelGetName",
       [=](void* handle) {
         return name_of(Find<decltype(&::cuKernelGetName)>("cuKernelGetName"), static_cast<CUkernel>(handle));
       }},
      {"cuFuncGetParamInfo",
       [=](void* handle) {
         return sizes_of(Find<decltype(&::cuFuncGetParamInfo)>("cuFuncGetParamInfo"),
                         static_cast<CUfunction>(handle));
       }},
      {"cuKernelGetParamInfo",
       [=](void* handle) {
         return sizes_of(Find<decltype(&::cuKernelGetParamInfo)>("cuKernelGetParamInfo"),
                         static_cast<CUkernel>(handle));
       }},
      {"cuFuncGetModule",
       [](void* handle) {
         CUmodule module = nullptr;
         const CUresult result =
             Find<decltype(&::cuFuncGetModule)>("cuFuncGetModule")(&module, static_cast<CUfunction>(handle));
         return Answer(result, module != nullptr);
       }},
      {"cuKernelGetLibrary",
       [](void* handle) {
         CUlibrary library = nullptr;
         const CUresult result = Find<decltype(&::cuKernelGetLibrary)>("cuKernelGetLibrary")(
             &library, static_cast<CUkernel>(handle));
         return Answer(result, library != nullptr);
       }},
      {"cuKernelGetFunction",
       [](void* handle) {
         CUfunction function = nullptr;
         const CUresult result = Find<decltype(&::cuKernelGetFunction)>("cuKernelGetFunction")(
             &function, static_cast<CUkernel>(handle));
         return Answer(result, function != nullptr);
       }},
  };
}

constexpr const char* kHandles[] = {"function", "kernel", "null", "dead function", "dead kernel"};

void* HandleNamed(const HandlesOfAllKinds& made, const std::string& name) {
  if (name == "function") return made.function;
  if (name == "kernel") return made.kernel;
  if (name == "dead function") return made.dead_function;
  if (name == "dead kernel") return made.dead_kernel;
  return nullptr;
}

}  // namespace

std::vector<std::string> HandleCases() {
  std::vector<std::string> cases;
  for (const auto& question : Questions()) {
    for (const char* handle : kHandles) cases.push_back(question.first + " of " + handle);
  }
  return cases;
}

Json Handles(const FactSetup& setup) {
  const HandlesOfAllKinds made = Make();
  for (const auto& [name, ask] : Questions()) {
    for (const char* handle : kHandles) {
      if (setup.variant != name + " of " + handle) continue;
      if (Gpu::Get().Symbol(name.c_str()) == nullptr) return {{"missing", name}};
      return ask(HandleNamed(made, handle));
    }
  }
  return {{"missing", setup.variant}};
}

Json TensorMapWords(const FactSetup&) {
  const Gpu& gpu = Gpu::Get();
  const auto encode = Find<decltype(&::cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
  if (encode == nullptr) return {{"missing", "cuTensorMapEncodeTiled"}};
  const Mapping memory(4 * kMiB);
  const auto make = [&](CUdeviceptr address, CUtensorMap* map) {
    const cuuint64_t sizes[2] = {256, 256}, strides[1] = {1024};
    const cuuint32_t box[2] = {32, 32}, steps[2] = {1, 1};
    gpu.Must(encode(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, reinterpret_cast<void*>(address), sizes, strides,
                    box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                    CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
             "cuTensorMapEncodeTiled");
  };
  CUtensorMap first = {}, again = {}, moved = {};
  make(memory.address(), &first);
  make(memory.address(), &again);
  make(memory.address() + 2 * kMiB, &moved);
  uint64_t words[16], other[16];
  std::memcpy(words, &first, sizeof(words));
  std::memcpy(other, &moved, sizeof(other));
  Json changed = Json::array(), plain = Json::array();
  for (int i = 0; i < 16; ++i) {
    if (words[i] != other[i]) changed.push_back(i);
    if (words[i] == memory.address()) plain.push_back(i);
  }
  return {{"address", memory.address()},
          {"word_0", words[0]},
          {"word_1", words[1]},
          {"words_that_are_the_address", plain},
          {"words_that_change_with_it", changed},
          {"equal_when_encoded_again", std::memcmp(&first, &again, sizeof(first)) == 0}};
}

}  // namespace spillway::gpu
