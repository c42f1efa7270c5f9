// The yardstick of everything that goes to a disk: 8 threads that read or write one preallocated file with
// O_DIRECT, 512 KiB at a time, in order. Benches compare the engines and the motion of blocks with it in the
// same run, since a disk's speed changes from run to run. A failed transfer ends the program with a line.

#ifndef SPILLWAY_BENCH_PLAIN_FILE_H_
#define SPILLWAY_BENCH_PLAIN_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "io/engine/aligned_buffer.h"
#include "io/store/spill_file.h"

namespace spillway::bench {

class PlainFile {
 public:
  // Ends the program with a line when the file cannot be made.
  PlainFile(const std::string& directory, uint64_t bytes);
  // Moves all of it through `buffer`; returns GB/s. The first write fills the preallocated blocks and counts
  // little.
  double Transfer(bool write, io::AlignedBuffer* buffer);
  // A name by which other programs open it, as long as this object lives: it has none in a directory.
  std::string path() const;

 private:
  const uint64_t bytes_;
  std::unique_ptr<io::SpillFile> file_;
};

}  // namespace spillway::bench

#endif  // SPILLWAY_BENCH_PLAIN_FILE_H_
