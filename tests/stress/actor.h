// Actor: one user of the store, on a thread of its own. It takes slots, writes, reads, promotes, cancels and
// gives back, several requests at a time, and knows what each of its slots must contain. What the store says
// or gives against its interface (io/store/spill_store.h) fails the seed.

#ifndef SPILLWAY_TESTS_STRESS_ACTOR_H_
#define SPILLWAY_TESTS_STRESS_ACTOR_H_

#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "io/engine/aligned_buffer.h"
#include "io/store/spill_store.h"
#include "tests/stress/board.h"

namespace spillway::stress {

class Actor {
 public:
  Actor(io::SpillStore* store, Board* board, size_t number);

  // So many operations, then waits for what is under way.
  void Run(uint64_t operations);
  // Drives are well, and nothing is under way: all that was written reads back.
  void ReadAllBack();
  void GiveAll();

  uint64_t operations() const { return operations_; }
  uint64_t bytes_moved() const { return bytes_moved_; }

 private:
  struct Slot {
    io::SlotId id;
    uint64_t pattern = 0;
    uint32_t bytes = 0;  // 0: no contents
    bool writing = false;
    bool damaged = false;        // on the disk, by a fault of the test
    int reads = 0;               // under way
    uint64_t cancellations = 0;  // CancelPrefetch calls so far
  };
  struct Request {
    Slot* slot = nullptr;
    io::IoOp op = io::IoOp::kRead;
    io::Priority priority = io::Priority::kDemand;
    uint64_t pattern = 0;
    uint32_t bytes = 0;
    uint64_t cancellations = 0;  // of the slot, when it began
    size_t buffer = 0;
    int ended = 0;  // guarded by mu_
    absl::Status status{};
  };

  // Each returns whether there was anything to do.
  bool Step();
  bool Take();
  bool Write();
  bool Read();
  bool ReadEmpty();
  bool Release();
  bool Hasten();
  void ReadOf(Slot* slot, io::Priority priority);
  void GiveBack(Slot* slot);
  Slot* Any();
  uint32_t DrawBytes();
  size_t TakeBuffer();
  io::SpillStore::Done Ends(Request* request);
  void Collect(bool wait);
  void Drain();
  void Finish(Request* request);
  void FinishWrite(const Request& request);
  void FinishRead(const Request& request);
  std::string Describe(const Request& request) const;

  io::SpillStore* const store_;
  Board* const board_;
  const size_t number_;
  std::mt19937_64 random_;
  std::list<Slot> slots_;
  std::vector<std::unique_ptr<io::AlignedBuffer>> buffers_;
  std::vector<size_t> free_buffers_;
  io::AlignedBuffer expected_{io::kSlotBytes};
  size_t under_way_ = 0;
  uint64_t operations_ = 0;
  uint64_t bytes_moved_ = 0;

  std::mutex mu_;
  std::condition_variable changed_;
  std::vector<Request*> ended_;  // guarded by mu_
};

}  // namespace spillway::stress

#endif  // SPILLWAY_TESTS_STRESS_ACTOR_H_
