// The table of the simulated device: the entry points that the allocator calls. Any other one fails the run.

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <string>

#include "allocator/driver/content_hash.h"
#include "allocator/tier/pinned_slab.h"
#include "tests/simulation/gpu.h"
#include "tests/simulation/scheduler.h"

namespace spillway::simulation {
namespace {

Gpu* gpu = nullptr;

constexpr uint64_t kBlocksBytes = uint64_t{1} << 28;      // what is reserved for blocks is at least so large
constexpr uint64_t kHostBase = uint64_t{0x300000000000};  // the same in each run, and no sanitizer's

}  // namespace

// An entry point is a switch point, and answers the error that stays, if there is one.
struct Gpu::Entries {
#define ENTER()                                                                  \
  do {                                                                           \
    if (const CUresult stays = gpu->Call(); stays != CUDA_SUCCESS) return stays; \
  } while (false)

  // ---- Memory.

  static CUresult Reserve(CUdeviceptr* address, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
    ENTER();
    if (bytes < kBlocksBytes) {  // a slab of the host tier
      *address = gpu->ReserveOfHost(bytes);
      return CUDA_SUCCESS;
    }
    *address = gpu->next_base_;
    gpu->next_base_ += bytes;
    return CUDA_SUCCESS;
  }
  static CUresult AddressFree(CUdeviceptr, size_t) { return CUDA_SUCCESS; }
  static CUresult Info(size_t* free_bytes, size_t* total_bytes) {
    ENTER();
    *total_bytes = gpu->options_.most_chunks * gpu->options_.chunk_bytes;
    *free_bytes = *total_bytes - gpu->held_ * gpu->options_.chunk_bytes;
    return CUDA_SUCCESS;
  }
  static CUresult Create(CUmemGenericAllocationHandle* handle, size_t bytes,
                         const CUmemAllocationProp* properties, unsigned long long) {
    ENTER();
    const bool in_host = properties->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
    const int one_in = in_host ? 0 : gpu->options_.refuse_chunk_one_in;
    if (bytes % gpu->options_.chunk_bytes != 0) scheduler().Fail("a handle is not of whole chunks");
    const uint64_t chunks = bytes / gpu->options_.chunk_bytes;
    if ((!in_host && gpu->held_ + chunks > gpu->options_.most_chunks) ||
        (one_in > 0 && gpu->random_->OneIn(one_in))) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    auto chunk = std::make_unique<Chunk>();
    chunk->words.assign(bytes / 8, 0xdeadbeefdeadbeef);
    *handle = gpu->next_chunk_++;
    chunk->in_host = in_host;
    gpu->chunks_[*handle] = std::move(chunk);
    if (!in_host) gpu->held_ += chunks;
    return CUDA_SUCCESS;
  }
  static CUresult Release(CUmemGenericAllocationHandle handle) {
    ENTER();
    const auto it = gpu->chunks_.find(handle);
    if (it == gpu->chunks_.end() || it->second->released) scheduler().Fail("a chunk is released twice");
    it->second->released = true;
    if (!it->second->in_host) gpu->held_ -= it->second->words.size() * 8 / gpu->options_.chunk_bytes;
    gpu->Forget(it->second.get());
    return CUDA_SUCCESS;
  }
  static CUresult Map(CUdeviceptr address, size_t bytes, size_t, CUmemGenericAllocationHandle handle,
                      unsigned long long) {
    ENTER();
    const auto it = gpu->chunks_.find(handle);
    if (it == gpu->chunks_.end() || it->second->released) scheduler().Fail("a chunk that is gone is mapped");
    // In host memory: where the processor sees it, and at one block's address.
    if (it->second->maps > (it->second->in_host ? 1 : 0))
      scheduler().Fail("a chunk is mapped at one address too many");
    if (bytes != it->second->words.size() * 8) scheduler().Fail("a mapping is not a whole handle");
    if (it->second->in_host && it->second->host == nullptr)
      it->second->host = reinterpret_cast<uint64_t*>(address);
    for (uint64_t at = 0; at < bytes; at += gpu->options_.chunk_bytes) {
      Page& page = gpu->pages_[(address + at) / gpu->options_.chunk_bytes];
      if (page.chunk != nullptr) scheduler().Fail("an address is mapped twice");
      page.chunk = it->second.get();
      page.at = at;
      ++page.chunk->maps;
    }
    return CUDA_SUCCESS;
  }
  static CUresult SetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc*, size_t) {
    ENTER();
    for (uint64_t at = 0; at < bytes; at += gpu->options_.chunk_bytes) {
      const auto page = gpu->pages_.find((address + at) / gpu->options_.chunk_bytes);
      if (page == gpu->pages_.end()) scheduler().Fail("access is given to an address that is not mapped");
      page->second.access = true;
    }
    return CUDA_SUCCESS;
  }
  static CUresult Unmap(CUdeviceptr address, size_t bytes) {
    ENTER();
    std::set<Chunk*> touched;
    for (uint64_t at = 0; at < bytes; at += gpu->options_.chunk_bytes) {
      const auto page = gpu->pages_.find((address + at) / gpu->options_.chunk_bytes);
      if (page == gpu->pages_.end()) scheduler().Fail("an address is unmapped that is not mapped");
      touched.insert(page->second.chunk);
      --page->second.chunk->maps;
      gpu->pages_.erase(page);
    }
    for (Chunk* chunk : touched) {
      if (chunk->maps > 0 && !chunk->in_host) scheduler().Fail("a part of a mapping is unmapped");
      gpu->Forget(chunk);
    }
    return CUDA_SUCCESS;
  }
  static CUresult Register(void* memory, size_t bytes, unsigned flags) {
    ENTER();
    // Only the memory for hashes is seen by the device; everything else is a slab.
    const bool is_slab = (flags & CU_MEMHOSTREGISTER_DEVICEMAP) == 0;
    gpu->registered_.emplace_back(memory, bytes + (is_slab ? allocator::kSlabGuard : 0));
    return CUDA_SUCCESS;
  }
  static CUresult Unregister(void* memory) {
    ENTER();
    std::erase_if(gpu->registered_, [&](const auto& range) { return range.first == memory; });
    return CUDA_SUCCESS;
  }
  static CUresult DevicePointer(CUdeviceptr* address, void* memory, unsigned) {
    ENTER();
    *address = reinterpret_cast<CUdeviceptr>(memory);
    return CUDA_SUCCESS;
  }

  // ---- Work.

  static CUresult CopyOut(void* host, CUdeviceptr address, size_t bytes, CUstream stream) {
    ENTER();
    return gpu->Enqueue(stream, gpu->CopyOf(static_cast<std::byte*>(host), address, bytes, true));
  }
  static CUresult CopyIn(CUdeviceptr address, const void* host, size_t bytes, CUstream stream) {
    ENTER();
    auto* const from = static_cast<std::byte*>(const_cast<void*>(host));
    Kernel copy = gpu->CopyOf(from, address, bytes, false);
    if (!gpu->flips_ || !gpu->flips_(address)) return gpu->Enqueue(stream, std::move(copy));
    return gpu->Enqueue(stream, [copy = std::move(copy), address](Gpu* on) {
      copy(on);
      *on->Words(address) ^= 1;
    });
  }
  static CUresult Launch(CUfunction, unsigned blocks, unsigned, unsigned, unsigned, unsigned, unsigned,
                         unsigned, CUstream stream, void** parameters, void**) {
    ENTER();
    const CUdeviceptr address = *static_cast<CUdeviceptr*>(parameters[0]);
    const uint64_t vectors = *static_cast<uint64_t*>(parameters[1]);
    const CUdeviceptr partials = *static_cast<CUdeviceptr*>(parameters[2]);
    return gpu->Enqueue(stream, gpu->HashOf(address, vectors, reinterpret_cast<uint64_t*>(partials), blocks));
  }
  static CUresult NewEvent(CUevent* event, unsigned) {
    ENTER();
    gpu->events_.push_back(std::make_unique<Event>());
    *event = reinterpret_cast<CUevent>(gpu->events_.back().get());
    return CUDA_SUCCESS;
  }
  static CUresult Record(CUevent handle, CUstream stream) {
    ENTER();
    auto* const event = reinterpret_cast<Event*>(handle);
    event->last = std::make_shared<Gpu::Record>();
    gpu->Add(gpu->StreamOf(stream), {nullptr, event->last, false});
    return CUDA_SUCCESS;
  }
  static CUresult Query(CUevent handle) {
    scheduler().SwitchPoint();
    if (gpu->error_ != CUDA_SUCCESS) return gpu->error_;
    const auto* const event = reinterpret_cast<Event*>(handle);
    return event->last == nullptr || event->last->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  }
  static CUresult Elapsed(float* milliseconds, CUevent, CUevent) {
    ENTER();
    *milliseconds = 0.01F;
    return CUDA_SUCCESS;
  }
  static CUresult WaitEvent(CUstream stream, CUevent handle, unsigned) {
    ENTER();
    auto* const event = reinterpret_cast<Event*>(handle);
    if (event->last != nullptr) gpu->Add(gpu->StreamOf(stream), {nullptr, event->last, true});
    return CUDA_SUCCESS;
  }
  static CUresult StreamSynchronize(CUstream stream) {
    ENTER();
    gpu->Synchronize(stream);
    return gpu->error_;
  }
  static CUresult NewStream(CUstream* stream, unsigned, int) {
    ENTER();
    *stream = gpu->NewStream();
    return CUDA_SUCCESS;
  }
  static CUresult Capturing(CUstream, CUstreamCaptureStatus* status) {
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  }
  static CUresult ContextOf(CUstream, CUcontext* context) {
    *context = Gpu::context();
    return CUDA_SUCCESS;
  }

  // ---- The rest.

  static CUresult CurrentContext(CUcontext* context) { return ContextOf(nullptr, context); }
  static CUresult Push(CUcontext) { return CUDA_SUCCESS; }
  static CUresult Pop(CUcontext* context) { return ContextOf(nullptr, context); }
  static CUresult ContextDevice(CUdevice* device) {
    *device = 0;
    return CUDA_SUCCESS;
  }
  static CUresult ContextSynchronize() {
    ENTER();
    for (size_t i = 0; i < gpu->streams_.size(); ++i) {
      gpu->Synchronize(reinterpret_cast<CUstream>(gpu->streams_[i].get()));
    }
    return gpu->error_;
  }
  static CUresult Mode(CUstreamCaptureMode*) { return CUDA_SUCCESS; }
  static CUresult Device(CUdevice* device, int) { return ContextDevice(device); }
  static CUresult Attribute(int* value, CUdevice_attribute, CUdevice) {
    *value = 9;
    return CUDA_SUCCESS;
  }
  static CUresult LoadModule(CUmodule* module, const void*) {
    ENTER();
    *module = reinterpret_cast<CUmodule>(uint64_t{1});
    return CUDA_SUCCESS;
  }
  static CUresult FunctionOf(CUfunction* function, CUmodule, const char*) {
    ENTER();
    *function = reinterpret_cast<CUfunction>(uint64_t{1});
    return CUDA_SUCCESS;
  }
  static CUresult Words(CUresult, const char** text) {
    *text = "simulated";
    return CUDA_SUCCESS;
  }
#undef ENTER
};

Gpu::Gpu(const Options& options, Random* random) : options_(options), random_(random) {
  gpu = this;
  driver_.cuMemAddressReserve = &Entries::Reserve;
  driver_.cuMemAddressFree = &Entries::AddressFree;
  driver_.cuMemGetInfo_v2 = &Entries::Info;
  driver_.cuMemCreate = &Entries::Create;
  driver_.cuMemRelease = &Entries::Release;
  driver_.cuMemMap = &Entries::Map;
  driver_.cuMemSetAccess = &Entries::SetAccess;
  driver_.cuMemUnmap = &Entries::Unmap;
  driver_.cuMemHostRegister_v2 = &Entries::Register;
  driver_.cuMemHostGetDevicePointer_v2 = &Entries::DevicePointer;
  driver_.cuMemcpyDtoHAsync_v2 = &Entries::CopyOut;
  driver_.cuMemcpyHtoDAsync_v2 = &Entries::CopyIn;
  driver_.cuLaunchKernel = &Entries::Launch;
  driver_.cuEventCreate = &Entries::NewEvent;
  driver_.cuEventRecord = &Entries::Record;
  driver_.cuEventQuery = &Entries::Query;
  driver_.cuEventElapsedTime = &Entries::Elapsed;
  driver_.cuStreamWaitEvent = &Entries::WaitEvent;
  driver_.cuStreamSynchronize = &Entries::StreamSynchronize;
  driver_.cuStreamCreateWithPriority = &Entries::NewStream;
  driver_.cuStreamIsCapturing = &Entries::Capturing;
  driver_.cuStreamGetCtx = &Entries::ContextOf;
  driver_.cuCtxGetCurrent = &Entries::CurrentContext;
  driver_.cuCtxSetCurrent = &Entries::Push;
  driver_.cuCtxPushCurrent_v2 = &Entries::Push;
  driver_.cuCtxPopCurrent_v2 = &Entries::Pop;
  driver_.cuCtxGetDevice = &Entries::ContextDevice;
  driver_.cuCtxSynchronize = &Entries::ContextSynchronize;
  driver_.cuThreadExchangeStreamCaptureMode = &Entries::Mode;
  driver_.cuDeviceGet = &Entries::Device;
  driver_.cuDeviceGetAttribute = &Entries::Attribute;
  driver_.cuModuleLoadData = &Entries::LoadModule;
  driver_.cuModuleGetFunction = &Entries::FunctionOf;
  driver_.cuGetErrorName = &Entries::Words;
  driver_.cuGetErrorString = &Entries::Words;
}

Gpu::~Gpu() {
  gpu = nullptr;
  for (const auto& [memory, bytes] : registered_) munmap(memory, bytes);
  for (const auto& [memory, bytes] : of_host_) munmap(memory, bytes);
}

Gpu* Gpu::current() { return gpu; }

CUdeviceptr Gpu::ReserveOfHost(uint64_t bytes) {
  const uint64_t start = of_host_.empty()
                             ? kHostBase
                             : reinterpret_cast<uint64_t>(of_host_.back().first) + of_host_.back().second;
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
  void* const got = mmap(reinterpret_cast<void*>(start), bytes, PROT_READ | PROT_WRITE, kFlags, -1, 0);
  if (got != reinterpret_cast<void*>(start)) scheduler().Fail("the addresses of the host tier are taken");
  of_host_.emplace_back(got, bytes);
  return start;
}

}  // namespace spillway::simulation
