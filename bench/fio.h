// fio, the field's own measure of a drive, run over a file of ours: what an engine reaches beside it in the same
// minute is no matter of the drive's mood. It moves the whole file in order with O_DIRECT, 512 KiB at a time, by
// io_uring with 16 requests under way or by 8 threads, as our engines do. One thread; whatever goes wrong ends
// the program with a line.

#ifndef SPILLWAY_BENCH_FIO_H_
#define SPILLWAY_BENCH_FIO_H_

#include <cstdint>
#include <string>

namespace spillway::bench {

enum class FioWay { kUring, kThreads };
enum class Direction { kRead, kWrite };

// Of one transfer of the file.
struct TransferStats {
  double gb_per_s = 0;      // 10^9 bytes
  double cpu_s_per_gb = 0;  // seconds of processor, user and system
};

class Fio {
 public:
  // The line says what to install where there is none.
  Fio();

  const std::string& version() const { return version_; }  // "fio-3.33"
  // `path`: a file of at least `bytes`, which keeps its size. The time is that of the transfers alone; the
  // processor's is that of the threads that make them, without the start of the program.
  TransferStats Transfer(FioWay way, Direction direction, const std::string& path, uint64_t bytes) const;

 private:
  std::string version_;
};

}  // namespace spillway::bench

#endif  // SPILLWAY_BENCH_FIO_H_
