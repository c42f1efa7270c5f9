// Gpu: one simulated device behind a CudaDriver table: address space with what is mapped and may be touched,
// physical chunks with their words, streams of which each is a task, events, registered host memory, and an
// error that stays. A kernel or copy that touches an address which is not mapped fails the run. Contents
// change chunk by chunk, with switch points in between: what is read while another stream writes is torn.

#ifndef SPILLWAY_TESTS_SIMULATION_GPU_H_
#define SPILLWAY_TESTS_SIMULATION_GPU_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "allocator/driver/cuda_driver.h"
#include "tests/simulation/random.h"

namespace spillway::simulation {

struct Task;

class Gpu {
 public:
  struct Options {
    uint64_t chunk_bytes = 4096;
    uint64_t most_chunks = 1 << 20;  // physical memory
    int slow_one_in = 0;             // operations that take their time; 0: none
    int refuse_chunk_one_in = 0;     // cuMemCreate that says out of memory
  };

  Gpu(const Options& options, Random* random);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  // The one that the table of entry points belongs to.
  static Gpu* current();
  const allocator::CudaDriver* driver() const { return &driver_; }
  static CUcontext context() { return reinterpret_cast<CUcontext>(uint64_t{0x1000}); }

  // ---- From tasks.

  CUstream NewStream();
  // Work on a stream; `body` runs in the stream's task and touches memory by Words. No switch point.
  using Kernel = std::function<void(Gpu*)>;
  CUresult Enqueue(CUstream stream, Kernel body);
  // The words of the chunk at that address, in a kernel. `offset` is in bytes from `address`, in whole
  // chunks.
  uint64_t* Words(CUdeviceptr address);
  bool IsMapped(CUdeviceptr address) const;
  void Synchronize(CUstream stream);
  // Other streams may go on here.
  void Pause();

  // All calls answer it from now on, and no kernel runs.
  void Poison(CUresult error);
  CUresult error() const { return error_; }
  uint64_t chunks_held() const { return held_; }
  uint64_t operations() const { return operations_; }
  uint64_t mapped_chunks() const { return pages_.size(); }
  void set_refuse_chunks(int one_in) { options_.refuse_chunk_one_in = one_in; }
  // Asked for each copy from host memory: whether a bit of it is wrong on the GPU.
  void set_flips(std::function<bool(CUdeviceptr address)> flips) { flips_ = std::move(flips); }

 private:
  struct Chunk {  // one handle, of one chunk or more
    std::vector<uint64_t> words;
    uint64_t* host =
        nullptr;  // of a handle in host memory: where the processor sees it, once it is mapped there
    bool in_host = false;
    int maps = 0;
    bool released = false;
    uint64_t* data() { return host != nullptr ? host : words.data(); }
  };
  struct Page {
    Chunk* chunk = nullptr;
    uint64_t at = 0;  // bytes of the handle before this page
    bool access = false;
  };
  // One record of an event: a later one on another stream says nothing about it.
  struct Record {
    bool done = false;
  };
  struct Event {
    std::shared_ptr<Record> last;  // null: never recorded
  };
  struct Operation {
    Kernel body;                     // null: nothing but the event
    std::shared_ptr<Record> record;  // made, or waited for
    bool wait = false;
  };
  struct Stream {
    std::deque<Operation> operations;
    uint64_t enqueued = 0;
    uint64_t completed = 0;
  };
  struct Entries;  // the functions of the table

  Stream* StreamOf(CUstream handle);
  void Add(Stream* stream, Operation operation);
  void StreamLoop(Stream* stream);
  void Notify(const void* what);
  // Addresses that are memory of the process, too: for what the processor touches.
  CUdeviceptr ReserveOfHost(uint64_t bytes);
  CUresult Call() const;  // a switch point; the error that stays
  void Forget(Chunk* chunk);
  Kernel CopyOf(std::byte* host, CUdeviceptr address, uint64_t bytes, bool out);
  Kernel HashOf(CUdeviceptr address, uint64_t vectors, uint64_t* partials, unsigned count);

  Options options_;
  std::function<bool(CUdeviceptr)> flips_;
  Random* const random_;
  allocator::CudaDriver driver_;
  std::unordered_map<uint64_t, Page> pages_;  // by address / chunk_bytes
  std::unordered_map<uint64_t, std::unique_ptr<Chunk>> chunks_;
  std::vector<std::unique_ptr<Event>> events_;
  std::vector<std::unique_ptr<Stream>> streams_;
  Stream* legacy_ = nullptr;
  std::vector<std::pair<void*, uint64_t>> registered_;  // host memory, and the bytes to unmap of it
  std::vector<std::pair<void*, uint64_t>> of_host_;     // ReserveOfHost's
  uint64_t next_chunk_ = 1;
  uint64_t next_base_ = uint64_t{1} << 44;
  uint64_t held_ = 0;
  uint64_t operations_ = 0;
  CUresult error_ = CUDA_SUCCESS;
};

}  // namespace spillway::simulation

#endif  // SPILLWAY_TESTS_SIMULATION_GPU_H_
