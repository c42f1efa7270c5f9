// An IoEngine over a pool of threads that call pread and pwrite. It works on every file system and in every
// container, and is chosen when io_uring does not work (io/store/probe.h). It fails only when no thread can
// be started.

#ifndef SPILLWAY_IO_ENGINE_THREAD_ENGINE_H_
#define SPILLWAY_IO_ENGINE_THREAD_ENGINE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "io/engine/engine.h"

namespace spillway::io {

enum class PageCache : uint8_t {
  kBypassed,  // the files are O_DIRECT
  kWrittenThrough,  // the files are buffered: a write ends once it is on the disk, a read begins without cached pages
};

struct ThreadEngineOptions {
  int threads = 8;       // at least 1
  size_t capacity = 16;  // requests in flight
  PageCache page_cache = PageCache::kBypassed;
  std::string thread_name = "spill-io";
};

// `files` are open descriptors, which the caller closes after Stop. The engine has fewer threads when the
// system has no more, and fails with kResourceExhausted when it has none. If the page cache is
// kWrittenThrough, each thread opens the files again for itself, by /proc/self/fd. There are then only as
// many threads as this succeeds for; the error is returned when it succeeds for none.
absl::StatusOr<std::unique_ptr<IoEngine>> MakeThreadEngine(const std::vector<int>& files,
                                                           const ThreadEngineOptions& options);

}  // namespace spillway::io

#endif  // SPILLWAY_IO_ENGINE_THREAD_ENGINE_H_
