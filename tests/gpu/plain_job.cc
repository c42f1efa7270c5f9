// A job without PyTorch, for machines whose PyTorch is another or has none: blocks from Spillway's C ABI (or
// from the driver, for comparison), kernels in PTX whose results the host can foretell, and matrix products of
// cuBLAS where there is one. Each round mixes every block with its neighbour, in an order that recurs; at the
// end every word of every block is checked. A block's words are slope * i + offset throughout, so the host
// keeps two numbers for each. Prints RESULT and a line of JSON. Started by visit.py, under the preload.

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "integration/engine/spillway.h"
#include "tests/command_line.h"
#include "tests/gpu/gpu.h"

namespace spillway::gpu {
namespace {

using Json = nlohmann::json;

// The table of the engine that is loaded; null where Spillway does not run.
const spillway_api* FindEngine() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t path = line.find('/');
    if (path == std::string::npos || line.find("/libspillway_engine.so", path) == std::string::npos) continue;
    void* const engine = dlopen(line.c_str() + path, RTLD_NOW | RTLD_NOLOAD);
    if (engine == nullptr) return nullptr;
    return reinterpret_cast<decltype(&::spillway_engine_api)>(dlsym(engine, SPILLWAY_ENGINE_API))();
  }
  return nullptr;
}

struct Block {
  CUdeviceptr address = 0;
  uint32_t slope = 1, offset = 0;
};

// What of cuBLAS is used, by the names that its library exports.
struct Blas {
  using Handle = void*;
  int (*create)(Handle*) = nullptr;
  int (*set_stream)(Handle, CUstream) = nullptr;
  int (*product)(Handle, int, int, int, int, int, const float*, const float*, int, const float*, int,
                 const float*, float*, int) = nullptr;
  Handle handle = nullptr;

  // False with words in `why` where there is none.
  bool Open(CUstream stream, std::string* why) {
    void* library = nullptr;
    for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11", "libcublas.so"}) {
      if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (library == nullptr) {
      *why = "no libcublas is found; name its folder in LD_LIBRARY_PATH";
      return false;
    }
    create = reinterpret_cast<decltype(create)>(dlsym(library, "cublasCreate_v2"));
    set_stream = reinterpret_cast<decltype(set_stream)>(dlsym(library, "cublasSetStream_v2"));
    product = reinterpret_cast<decltype(product)>(dlsym(library, "cublasSgemm_v2"));
    const bool made = create != nullptr && set_stream != nullptr && product != nullptr &&
                      create(&handle) == 0 && set_stream(handle, stream) == 0;
    if (!made) *why = "cuBLAS could not be started";
    return made;
  }
};

class Job {
 public:
  Job(int blocks, uint64_t bytes, bool ours) : bytes_(bytes), ours_(ours) {
    for (int i = 0; i < blocks; ++i) blocks_.push_back({Allocate(), 1, 0});
    gpu_.Must(gpu_.mem_alloc(&word_, 8), "cuMemAlloc");
  }

  void Fill() {
    for (size_t i = 0; i < blocks_.size(); ++i) {
      const uint32_t seed = static_cast<uint32_t>(i) + 1;
      gpu_.Fill(stream_, blocks_[i].address, bytes_, seed);
      blocks_[i].slope = 1;
      blocks_[i].offset = seed * 2654435761u;
    }
  }

  void Round() {
    for (size_t i = 0; i < blocks_.size(); ++i) {
      Block& to = blocks_[i];
      const Block& from = blocks_[(i + 1) % blocks_.size()];
      gpu_.Mix(stream_, to.address, from.address, bytes_);
      to.slope = 5 * to.slope + from.slope;
      to.offset = 5 * to.offset + from.offset + 7;
    }
  }

  // Words that are not what the host foretells.
  uint64_t Wrong() {
    Zero();
    for (const Block& block : blocks_)
      gpu_.Check(stream_, block.address, bytes_, block.slope, block.offset, word_);
    return Word();
  }

  // One matrix product before and one after the other blocks have come and gone: the same bits.
  Json Products(int rounds) {
    Blas blas;
    std::string why;
    if (gpu_.is_simcuda()) return {{"needs", "hardware: cuBLAS does not run on the stand-in device"}};
    if (!blas.Open(stream_, &why)) return {{"missing", why}};
    int side = 64;
    while (uint64_t(side) * 2 * side * 2 * 4 <= bytes_) side *= 2;
    // Small whole numbers as floats would be exact; these are arbitrary bits below one, the same in each run.
    const uint64_t first = HashOfProduct(blas, side);
    uint64_t differences = 0;
    for (int round = 0; round < rounds; ++round) {
      Round();
      differences += HashOfProduct(blas, side) != first;
    }
    return {{"side", side}, {"rounds", rounds}, {"differences", differences}};
  }

  // Nanoseconds from call to return of a launch that names a block and that the device does not hold up.
  double LaunchNanos(int launches) {
    constexpr int kBatch = 500;  // fewer than a stream's queue holds
    std::vector<double> nanos;
    for (int made = 0; made < launches; made += kBatch) {
      Synchronize();
      const Clock::time_point start = Clock::now();
      for (int i = 0; i < kBatch; ++i) gpu_.Nothing(stream_, blocks_[0].address);
      nanos.push_back(MicrosSince(start) * 1e3 / kBatch);
    }
    std::sort(nanos.begin(), nanos.end());
    return nanos[nanos.size() / 2];
  }

  // Everything is paused and comes back: the first time, which pins host memory, unchanged, and changed;
  // beside plain copies of the same blocks into pinned memory.
  Json Pauses() {
    Synchronize();
    const double plain = Seconds([&] { CopyPlainly(); });
    Json metrics = {{"bytes", blocks_.size() * bytes_}, {"plain_copy_seconds", plain}};
    const auto once = [&](const char* when) {
      spillway_pause_stats stats = {};
      const double out = Seconds([&] { MustDo(FindEngine()->pause(nullptr, &stats), "a pause"); });
      const double back = Seconds([&] { MustDo(FindEngine()->resume(nullptr, 1), "a resume"); });
      metrics[when] = {{"pause_seconds", out},
                       {"resume_seconds", back},
                       {"copied_bytes", stats.host_bytes + stats.disk_bytes},
                       {"clean_bytes", stats.clean_bytes},
                       {"released_bytes", stats.released_bytes},
                       {"remaining_bytes", stats.remaining_bytes}};
    };
    once("first");
    once("unchanged");
    Round();
    Synchronize();
    once("changed");
    return metrics;
  }

  void Synchronize() { gpu_.Must(gpu_.driver().cuStreamSynchronize(stream_), "cuStreamSynchronize"); }

 private:
  CUdeviceptr Allocate() {
    CUdeviceptr address = 0;
    if (!ours_) {
      gpu_.Must(gpu_.mem_alloc(&address, bytes_), "cuMemAlloc");
      return address;
    }
    void* pointer = nullptr;
    const int result = FindEngine()->allocate(0, bytes_, stream_, &pointer);
    if (result != 0) std::fprintf(stderr, "Spillway: %s\n", FindEngine()->last_error());
    gpu_.Must(static_cast<CUresult>(result), "a block of Spillway's");
    return reinterpret_cast<CUdeviceptr>(pointer);
  }

  static void MustDo(int result, const char* what) {
    if (result != 0) std::fprintf(stderr, "Spillway: %s\n", FindEngine()->last_error());
    Gpu::Get().Must(static_cast<CUresult>(result), what);
  }

  template <typename Body>
  static double Seconds(Body body) {
    const Clock::time_point start = Clock::now();
    body();
    return MicrosSince(start) / 1e6;
  }

  void CopyPlainly() {
    static std::vector<std::byte> pinned;  // stays registered
    if (pinned.empty()) {
      pinned.resize(bytes_);
      gpu_.Must(gpu_.driver().cuMemHostRegister_v2(pinned.data(), bytes_, 0), "cuMemHostRegister");
      CopyPlainly();  // pages are there
    }
    for (const Block& block : blocks_)
      gpu_.Must(gpu_.driver().cuMemcpyDtoHAsync_v2(pinned.data(), block.address, bytes_, stream_), "a copy");
    Synchronize();
  }

  // Of blocks of its own, which the mixing leaves alone.
  uint64_t HashOfProduct(const Blas& blas, int side) {
    const uint64_t used = uint64_t(side) * side * 4;
    if (operands_.empty()) {
      std::vector<float> values(uint64_t(side) * side);
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(i * 2654435761u % 1000) / 1000;
      for (int i = 0; i < 3; ++i) {
        operands_.push_back(Allocate());
        gpu_.Must(gpu_.driver().cuMemcpyHtoDAsync_v2(operands_.back(), values.data(), used, stream_),
                  "filling");
      }
      Synchronize();
    }
    const float one = 1, zero = 0;
    const auto at = [&](int i) { return reinterpret_cast<float*>(operands_[i]); };
    if (blas.product(blas.handle, 0, 0, side, side, side, &one, at(0), side, at(1), side, &zero, at(2),
                     side) != 0)
      gpu_.Must(CUDA_ERROR_UNKNOWN, "cublasSgemm");
    std::vector<uint32_t> result(uint64_t(side) * side);
    gpu_.Must(gpu_.driver().cuMemcpyDtoHAsync_v2(result.data(), operands_[2], used, stream_), "reading");
    Synchronize();
    uint64_t hash = 14695981039346656037u;
    for (const uint32_t word : result) hash = (hash ^ word) * 1099511628211u;
    return hash;
  }

  void Zero() {
    static const uint64_t zero = 0;
    gpu_.Must(gpu_.driver().cuMemcpyHtoDAsync_v2(word_, &zero, 8, stream_), "cuMemcpyHtoDAsync");
  }
  uint64_t Word() {
    uint64_t value = ~uint64_t{0};
    gpu_.Must(gpu_.driver().cuMemcpyDtoHAsync_v2(&value, word_, 8, stream_), "cuMemcpyDtoHAsync");
    Synchronize();
    return value;
  }

  const Gpu& gpu_ = Gpu::Get();
  const CUstream stream_ = gpu_.NewStream();
  const uint64_t bytes_;
  const bool ours_;
  std::vector<Block> blocks_;
  std::vector<CUdeviceptr> operands_;
  CUdeviceptr word_ = 0;
};

int Run(int argc, char** argv) {
  CommandLine line{"A job without PyTorch"};
  int blocks = 24, rounds = 6, products = 3, launches = 0;
  uint64_t mib = 8;
  bool ours = false, pauses = false;
  line.Add("--blocks", &blocks, "how many blocks", 2, 100000);
  line.Add("--mib", &mib, "size of each", 1, 65536);
  line.Add("--rounds", &rounds, "how often all are mixed", 1, 100000);
  line.Add("--products", &products, "matrix products of cuBLAS", 0, 1000);
  line.Add("--launches", &launches, "launches to be timed, each of which names a block", 0, 1e8);
  line.Add("--spillway", &ours, "blocks of Spillway's, which must run; else the driver's");
  line.Add("--pauses", &pauses, "pauses and resumes are timed; with --spillway");
  line.Parse(argc, argv);
  const std::string device = Gpu::Get().Description();
  if (ours && FindEngine() == nullptr) {
    std::fprintf(stderr, "Spillway does not run in this process\n");
    return 1;
  }
  const Clock::time_point start = Clock::now();
  Job job(blocks, mib * kMiB, ours);
  job.Fill();
  for (int round = 0; round < rounds; ++round) job.Round();
  uint64_t wrong = job.Wrong();
  const Json product = products == 0 ? Json() : job.Products(products);
  if (products != 0) wrong += job.Wrong();
  const Json paused = ours && pauses ? job.Pauses() : Json();
  if (!paused.is_null()) wrong += job.Wrong();
  Json report = {{"device", device},
                 {"wrong_words", wrong},
                 {"products", product},
                 {"seconds", std::chrono::duration<double>(Clock::now() - start).count()}};
  if (!paused.is_null()) report["pauses"] = paused;
  if (launches > 0) report["launch_ns"] = job.LaunchNanos(launches);
  if (ours) {
    spillway_device_stats stats = {};
    if (FindEngine()->device_stats(0, &stats) == 0) {
      report["budget_bytes"] = stats.budget_bytes;
      report["spilled_bytes"] = stats.spilled_bytes;
      report["fetched_bytes"] = stats.fetched_bytes;
    }
  }
  std::printf("RESULT %s\n", report.dump().c_str());
  const bool differ = product.is_object() && product.value("differences", 0) != 0;
  return wrong != 0 || differ ? 1 : 0;
}

}  // namespace
}  // namespace spillway::gpu

int main(int argc, char** argv) { return spillway::gpu::Run(argc, argv); }
