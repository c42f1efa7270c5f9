// AlignedBuffer: page-aligned memory for direct transfers, as a file opened with O_DIRECT requires. It serves
// probes and rates of disks, growth by writing, and benches. Blocks do not pass through it: their buffers are
// pinned. The process stops when there is no memory. The object has one owner, and the memory is freed with
// it.

#ifndef SPILLWAY_IO_ENGINE_ALIGNED_BUFFER_H_
#define SPILLWAY_IO_ENGINE_ALIGNED_BUFFER_H_

#include <cstddef>
#include <cstdlib>

#include "io/engine/engine.h"
#include "io/os/check.h"

namespace spillway::io {

class AlignedBuffer {
 public:
  // `bytes` is rounded up to whole pages. The contents are undefined.
  explicit AlignedBuffer(size_t bytes)
      : size_((bytes + kPageBytes - 1) / kPageBytes * kPageBytes),
        data_(static_cast<char*>(std::aligned_alloc(kPageBytes, size_))) {
    SPILLWAY_CHECK(data_ != nullptr);
  }
  ~AlignedBuffer() { std::free(data_); }
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;

  // Aligned to kPageBytes. Valid as long as the object.
  char* data() { return data_; }
  const char* data() const { return data_; }
  // Bytes, in whole pages: at least the requested size.
  size_t size() const { return size_; }

 private:
  const size_t size_;  // whole pages, as aligned_alloc requires
  char* const data_;
};

}  // namespace spillway::io

#endif  // SPILLWAY_IO_ENGINE_ALIGNED_BUFFER_H_
