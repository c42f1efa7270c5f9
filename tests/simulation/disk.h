// Disk: simulated directories with files of slots, below the product's SpillStore. It keeps bytes by their
// place. A transfer takes time and moves its bytes in two parts with a switch in between. It may fail or stop
// short, the drive may fail or be silent for a time, and the disk may be full.

#ifndef SPILLWAY_TESTS_SIMULATION_DISK_H_
#define SPILLWAY_TESTS_SIMULATION_DISK_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "io/engine/engine.h"
#include "tests/simulation/random.h"

namespace spillway::simulation {

class Disk {
 public:
  struct Options {
    uint64_t most_bytes = 0;  // of each file
    int slow_one_in = 0;      // transfers that take longer than all others
    int fail_one_in = 0;
    int short_one_in = 0;
    int refuse_growth_one_in = 0;
  };

  Disk(const Options& options, Random* random);
  ~Disk();
  static Disk* current();

  // ---- For the files.
  int Open();
  void Close(int file);
  // False: full.
  bool Resize(int file, uint64_t bytes);
  // Bytes that the file may still grow by.
  uint64_t SpaceOf(int file) const;

  std::unique_ptr<io::IoEngine> NewEngine(int file);
  uint64_t transfers() const { return transfers_; }
  void set_failures(int fail_one_in) { options_.fail_one_in = fail_one_in; }
  // For a time the drive answers errors, or nothing, or its writes find no space.
  enum class Sickness { kReadsFail, kWritesFail, kAllFail, kSilent, kFull };
  void FallIll(Sickness sickness, int64_t nanos);
  const Options& options() const { return options_; }

 private:
  friend class Engine;
  struct File {
    uint64_t bytes = 0;
    bool open = true;
    std::map<uint64_t, std::vector<char>> pages;  // by offset / kPageBytes
  };
  bool Fails(io::IoOp op) const;
  // Result as of pread and pwrite, or a negative errno value.
  int32_t Move(int file, const io::IoRequest& request);

  Options options_;
  Random* const random_;
  std::vector<std::unique_ptr<File>> files_;
  uint64_t transfers_ = 0;
  Sickness sickness_ = Sickness::kSilent;
  int64_t ill_until_ = 0;
};

}  // namespace spillway::simulation

#endif  // SPILLWAY_TESTS_SIMULATION_DISK_H_
