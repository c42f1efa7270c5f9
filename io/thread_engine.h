// IoEngine over a pool of threads that call pread and pwrite. Works on every file system and in every container.

#ifndef SPILLWAY_IO_THREAD_ENGINE_H_
#define SPILLWAY_IO_THREAD_ENGINE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "io/engine.h"

namespace spillway::io {

enum class PageCache : uint8_t {
  kBypassed,  // the files are O_DIRECT
  kDropped,   // buffered files: tell the kernel after each transfer that the pages are not needed again
};

struct ThreadEngineOptions {
  int threads = 8;       // at least 1
  size_t capacity = 16;  // requests in flight
  PageCache page_cache = PageCache::kBypassed;
  std::string thread_name = "spill-io";
};

// `files` are open descriptors, which the caller closes after Stop. With fewer threads when the system has no more;
// kResourceExhausted when it has none.
absl::StatusOr<std::unique_ptr<IoEngine>> MakeThreadEngine(std::vector<int> files,
                                                           const ThreadEngineOptions& options);

}  // namespace spillway::io

#endif  // SPILLWAY_IO_THREAD_ENGINE_H_
