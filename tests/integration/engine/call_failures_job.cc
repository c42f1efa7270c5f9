// A job without PyTorch, for call_failures_test.py: blocks of twice the budget from the C ABI, filled and read back by
// kernels of both kinds, by a graph, by copies and through a table of addresses, on the stand-in driver under the preload. One of the driver's calls
// fails (SIMCUDA_FAIL). Exit status: 0, everything was right; 3, a call was refused, with its words on standard output;
// 4, wrong bytes.

#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>
#include <dlfcn.h>
#include <link.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "integration/engine/spillway.h"
#include "integration/simcuda/driver/simcuda.h"

namespace {

constexpr size_t kBlock = 4 << 20;
constexpr int kBlocks = 24;
constexpr size_t kTable = 2;
constexpr char kImage[] = SIMCUDA_IMAGE_MAGIC "\njob_fill\njob_count\njob_follow\n";

[[noreturn]] void Refused(const char* what, int code, const char* words) {
  std::printf("refused: %s: %d %s\n", what, code, words);
  std::fflush(stdout);
  std::exit(3);
}

void* g_driver = nullptr;
const spillway_api* g_api = nullptr;

// Calls a function of the driver as the job finds it: the preload's.
template <typename Function, typename... A>
void Call(const char* name, A... arguments) {
  const auto function = reinterpret_cast<Function>(dlsym(g_driver, name));
  if (function == nullptr) Refused(name, -1, "is not there");
  const CUresult result = function(arguments...);
  if (result != CUDA_SUCCESS) Refused(name, result, g_api == nullptr ? "" : g_api->last_error());
}
#define CALL(symbol, ...) Call<decltype(&::symbol)>(#symbol, __VA_ARGS__)

void Fill(const simcuda_launch*, void** parameters) {
  auto* const words = *static_cast<uint64_t**>(parameters[0]);
  const uint64_t value = *static_cast<uint64_t*>(parameters[1]);
  for (size_t i = 0; i < kBlock / 8; i += 64) words[i] = value + i;
}

void Count(const simcuda_launch*, void** parameters) {
  const auto* const words = *static_cast<uint64_t**>(parameters[0]);
  const uint64_t value = *static_cast<uint64_t*>(parameters[1]);
  uint64_t wrong = 0;
  for (size_t i = 0; i < kBlock / 8; i += 64) wrong += words[i] != value + i;
  **static_cast<uint64_t**>(parameters[2]) += wrong;
}

// As job_fill, for each block whose address lies in a table.
void Follow(const simcuda_launch*, void** parameters) {
  auto** const table = *static_cast<uint64_t***>(parameters[0]);
  const uint64_t value = *static_cast<uint64_t*>(parameters[1]);
  for (size_t entry = 0; entry < kTable; ++entry) {
    for (size_t i = 0; i < kBlock / 8; i += 64) table[entry][i] = value + i;
  }
}

// The stand-in's own function, past the preload.
void* StandIn(const char* name) {
  link_map* map = nullptr;
  if (dlinfo(dlopen(nullptr, RTLD_NOW), RTLD_DI_LINKMAP, &map) != 0) return nullptr;
  for (; map != nullptr; map = map->l_next) {
    if (std::strstr(map->l_name, "libcuda.so") == nullptr) continue;
    if (void* address = dlsym(map, name)) return address;
  }
  return nullptr;
}

void Register() {
  const auto add = reinterpret_cast<decltype(&simcuda_register_kernel)>(StandIn("simcuda_register_kernel"));
  if (add == nullptr) Refused("simcuda_register_kernel", -1, "is not there");
  constexpr simcuda_parameter kParameters[] = {{0, 8}, {8, 8}, {16, 8}};
  const simcuda_kernel fill = {"job_fill", &Fill, nullptr, kParameters, 2};
  const simcuda_kernel count = {"job_count", &Count, nullptr, kParameters, 3};
  const simcuda_kernel follow = {"job_follow", &Follow, nullptr, kParameters, 2};
  add(&fill, nullptr);
  add(&follow, nullptr);
  add(&count, nullptr);
}

struct Job {
  CUcontext context = nullptr;
  CUlibrary library = nullptr;
  CUmodule module = nullptr;
  CUkernel fill = nullptr;
  CUfunction count = nullptr, follow = nullptr;
  CUstream stream = nullptr;
  CUdeviceptr wrong = 0, table = 0;
  std::vector<CUdeviceptr> blocks;

  void Start() {
    CALL(cuInit, 0u);
    const auto api = reinterpret_cast<decltype(&spillway_engine_api)>(
        dlsym(dlopen("libspillway_engine.so", RTLD_NOW | RTLD_NOLOAD), SPILLWAY_ENGINE_API));
    if (api == nullptr) Refused("the engine", -1, "did not start");
    g_api = api();
    CALL(cuDevicePrimaryCtxRetain, &context, 0);
    CALL(cuCtxSetCurrent, context);
    Register();
    CALL(cuLibraryLoadData, &library, kImage, nullptr, nullptr, 0u, nullptr, nullptr, 0u);
    CALL(cuModuleLoadData, &module, kImage);
    CUfunction functions[3];
    CUkernel kernels[3];
    CALL(cuModuleEnumerateFunctions, functions, 3u, module);
    CALL(cuLibraryEnumerateKernels, kernels, 3u, library);
    CALL(cuLibraryGetKernel, &fill, library, "job_fill");
    CALL(cuModuleGetFunction, &count, module, "job_count");
    CALL(cuModuleGetFunction, &follow, module, "job_follow");
    CALL(cuStreamCreateWithPriority, &stream, static_cast<unsigned>(CU_STREAM_NON_BLOCKING), 0);
    CALL(cuMemAlloc_v2, &wrong, size_t{64});
    CALL(cuMemAlloc_v2, &table, kTable * sizeof(uint64_t));
    CALL(cuMemsetD8Async, wrong, static_cast<unsigned char>(0), size_t{64}, stream);
  }
  CUdeviceptr AllocateOne(size_t bytes) {
    void* pointer = nullptr;
    const int result = g_api->allocate(0, bytes, stream, &pointer);
    if (result != 0) Refused("an allocation", result, g_api->last_error());
    return reinterpret_cast<CUdeviceptr>(pointer);
  }
  void Allocate() {
    for (int i = 0; i < kBlocks; ++i) blocks.push_back(AllocateOne(kBlock));
  }
  void Launch(void* kernel, CUdeviceptr block, uint64_t value) {
    void* parameters[] = {&block, &value, &wrong};
    CALL(cuLaunchKernel, static_cast<CUfunction>(kernel), 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream, parameters,
         nullptr);
  }
  // A graph with two launches that were captured. The kernels are asked for.
  void Captured(CUdeviceptr block, uint64_t value) {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    CALL(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    Launch(fill, block, value);
    Launch(count, block, value);
    CALL(cuStreamEndCapture, stream, &graph);
    CUgraphNode nodes[2] = {};
    size_t there = 2;
    CALL(cuGraphGetNodes, graph, nodes, &there);
    for (size_t i = 0; i < there; ++i) {
      CUDA_KERNEL_NODE_PARAMS_v2 params = {};
      CALL(cuGraphKernelNodeGetParams_v2, nodes[i], &params);
    }
    CALL(cuGraphInstantiateWithFlags, &exec, graph, 0ull);
    CALL(cuGraphLaunch, exec, stream);
    CALL(cuStreamSynchronize, stream);
    CALL(cuGraphExecDestroy, exec);
    CALL(cuGraphDestroy, graph);
  }
  void Copied(CUdeviceptr block, uint64_t value) {
    std::vector<uint64_t> words(kBlock / 8);
    for (size_t i = 0; i < words.size(); ++i) words[i] = value + i;
    CALL(cuMemcpyHtoDAsync_v2, block, words.data(), kBlock, stream);
    CALL(cuStreamSynchronize, stream);
    std::fill(words.begin(), words.end(), 0);
    CALL(cuMemcpyDtoHAsync_v2, words.data(), block, kBlock, stream);
    CALL(cuStreamSynchronize, stream);
    if (words[5] != value + 5 || words.back() != value + words.size() - 1) Wrong("a copy");
  }
  // Addresses of two blocks are put into a table by a call that does not say where its source is. Other blocks are used
  // until those two would have left; then a kernel that names the table alone writes into them.
  void Tabled(uint64_t value) {
    const uint64_t words[kTable] = {blocks[2], blocks[3]};
    CALL(cuMemcpyAsync, table, reinterpret_cast<CUdeviceptr>(words), sizeof(words), stream);
    for (size_t i = 4; i < blocks.size(); ++i) Launch(fill, blocks[i], value);
    CALL(cuStreamSynchronize, stream);
    void* parameters[] = {&table, &value};
    CALL(cuLaunchKernel, follow, 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream, parameters, nullptr);
    Launch(count, blocks[2], value);
    Launch(count, blocks[3], value);
  }
  // A texture object over a block pins it, and waits for the device at its end.
  void Textured(CUdeviceptr block) {
    CUDA_RESOURCE_DESC resource = {};
    resource.resType = CU_RESOURCE_TYPE_LINEAR;
    resource.res.linear = {block, CU_AD_FORMAT_FLOAT, 1, kBlock};
    const CUDA_TEXTURE_DESC description = {};
    CUtexObject texture = 0;
    CALL(cuTexObjectCreate, &texture, &resource, &description, nullptr);
    CALL(cuTexObjectDestroy, texture);
  }
  [[noreturn]] static void Wrong(const char* what) {
    std::printf("wrong bytes: %s\n", what);
    std::fflush(stdout);
    std::exit(4);
  }
  void Run() {
    for (uint64_t round = 1; round <= 2; ++round) {
      for (size_t i = 0; i < blocks.size(); ++i) Launch(fill, blocks[i], 1000 * round + i);
      for (size_t i = 0; i < blocks.size(); ++i) Launch(count, blocks[i], 1000 * round + i);
    }
    CALL(cuStreamSynchronize, stream);
    Captured(blocks[0], 77);
    Launch(count, blocks[0], 77);
    Copied(blocks[1], 88);
    Launch(count, blocks[1], 88);
    Tabled(99);
    Textured(blocks[5]);
    uint64_t found = 1;
    CALL(cuMemcpyDtoHAsync_v2, &found, wrong, sizeof(found), stream);
    CALL(cuStreamSynchronize, stream);
    if (found != 0) Wrong("a kernel");
  }
  static void Free(CUdeviceptr block) {
    const int result = g_api->free(reinterpret_cast<void*>(block));
    if (result != 0) Refused("a free", result, g_api->last_error());
  }
  void End() {
    for (const CUdeviceptr block : blocks) Free(block);
    // Of the memory that is cached now the driver makes one larger piece.
    const CUdeviceptr larger = AllocateOne(4 * kBlock);
    Launch(fill, larger, 111);
    CALL(cuStreamSynchronize, stream);
    Free(larger);
    CALL(cuLibraryUnload, library);
    CALL(cuModuleUnload, module);
    CALL(cuStreamDestroy_v2, stream);
  }
};

}  // namespace

int main() {
  g_driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (g_driver == nullptr) Refused("the driver", -1, dlerror());
  Job job;
  job.Start();
  job.Allocate();
  job.Run();
  job.End();
  std::printf("right\n");
  return 0;
}
