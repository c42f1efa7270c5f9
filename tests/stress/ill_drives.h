// IllDrives: makes the drives of one seed fall ill and well again: errors of reads, of writes, errors that
// say that the bytes are gone, a full disk, and silence, of one direction or of both. Each drive has a
// thread, from Start to Heal. While a drive keeps writes, reads of it must go on; IllDrives fails the seed
// where they do not.

#ifndef SPILLWAY_TESTS_STRESS_ILL_DRIVES_H_
#define SPILLWAY_TESTS_STRESS_ILL_DRIVES_H_

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "io/engine/engine.h"
#include "tests/fakes/drive_engine.h"
#include "tests/stress/board.h"

namespace spillway::stress {

class IllDrives {
 public:
  explicit IllDrives(Board* board);
  ~IllDrives() { Heal(); }

  // The engine of the directory with that index, with the faults of the seed.
  std::unique_ptr<io::IoEngine> Wrap(std::unique_ptr<io::IoEngine> engine, size_t directory);
  void Start();
  // All are well from now on. A second call does nothing.
  void Heal();

 private:
  void Run(size_t directory);
  // False when all are to be well.
  bool Pause(std::chrono::milliseconds time);
  void KeepWrites(size_t directory, std::chrono::milliseconds time);

  Board* const board_;
  std::vector<std::shared_ptr<io::Drive>> drives_;
  std::vector<std::thread> threads_;
  std::mutex mu_;
  std::condition_variable changed_;
  bool healed_ = false;  // guarded by mu_
};

}  // namespace spillway::stress

#endif  // SPILLWAY_TESTS_STRESS_ILL_DRIVES_H_
