// One application thread of the random job of core_model: which operation comes next, what each block must
// hold, and that the thread waits for others' streams as an application would.

#ifndef SPILLWAY_TESTS_ALLOCATOR_MODEL_WORKER_H_
#define SPILLWAY_TESTS_ALLOCATOR_MODEL_WORKER_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "tests/allocator/core_fixture.h"

namespace spillway::allocator {

struct ModelBlock {
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
  uint64_t version = 0;      // 0: never written
  CUstream owner = nullptr;  // may reuse the block as soon as it is freed
  CUstream last = nullptr;   // stream of the last launch: others must wait for it, as an application would
  bool pinned = false;
  uint64_t used = 0;                    // count of the last launch
  std::vector<CUstream> recorded = {};  // before a launch
  BlockRegion region = {};              // one of the thread's two, or none
};

// Keeps launches while one thread has all of the job paused, as somebody outside would.
class ModelGate : public PauseGate {
 public:
  absl::Status AwaitResume(absl::FunctionRef<std::string()>, const os::Atomic<bool>&) override {
    std::unique_lock<std::mutex> lock(mu_);
    opened_.wait(lock, [this] { return open_; });
    return absl::OkStatus();
  }
  void Set(bool open) {
    const std::lock_guard<std::mutex> lock(mu_);
    open_ = open;
    opened_.notify_all();
  }

 private:
  std::mutex mu_;
  std::condition_variable opened_;
  bool open_ = true;
};

// What each thread may take at a time besides the sets of its launches.
inline constexpr uint64_t kExternalChunks = 2;
inline constexpr uint64_t kPinnedChunks = 2;

// Shared by the threads and kernels of one run.
struct ModelJob {
  CoreDevice* device = nullptr;
  uint64_t most_chunks = 0;  // that one launch may name: they fit, whatever else the threads use
  std::atomic<uint64_t> wrong_words{0}, refused{0}, pins{0}, streams_destroyed{0}, freed_by_others{0};
  std::atomic<uint64_t> host_copies{0}, pinned_launches{0}, last_version{0};
  std::mutex mu;
  std::vector<ModelBlock> handed_over;  // given by one thread, to be used or freed by another
  // Some regions do not keep their bytes. Then nobody pauses all: other threads would not know what is left.
  bool drops = false;
  ModelGate gate;
  std::mutex outside_mu;  // who has it pauses all
  std::atomic<uint64_t> pauses_of_all{0}, pauses_of_regions{0};
  std::atomic<uint32_t> regions{0};  // numbers given to threads
};

// A thread's body, to be run once with the number of operations; it frees its blocks at the end. Streams are
// made now.
std::function<void(int operations)> MakeModelWorker(ModelJob* job, int seed, int streams, int most_blocks);

}  // namespace spillway::allocator

#endif  // SPILLWAY_TESTS_ALLOCATOR_MODEL_WORKER_H_
