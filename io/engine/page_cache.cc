#include "io/engine/page_cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "io/engine/engine.h"

namespace spillway::io {
namespace {

// The kernel's values. Headers from before Linux 6.1 lack the fields.
constexpr unsigned kStatxDirectAlignment = 0x2000;
constexpr size_t kStatxBytes = 256;
constexpr size_t kAtMask = 0, kAtMemoryAlignment = 0x98, kAtOffsetAlignment = 0x9c;

uint32_t WordAt(const char* data, size_t at) {
  uint32_t word;
  std::memcpy(&word, data + at, sizeof(word));
  return word;
}

}  // namespace

std::optional<uint64_t> CachedPages(int fd, uint64_t bytes) {
  const size_t pages = (bytes + kPageBytes - 1) / kPageBytes;
  // Nothing is read through the mapping, so it brings no page into the cache.
  void* const mapped = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  if (mapped == MAP_FAILED) return std::nullopt;
  std::vector<unsigned char> cached(pages);
  const bool known = mincore(mapped, bytes, cached.data()) == 0;
  munmap(mapped, bytes);
  if (!known) return std::nullopt;
  return static_cast<uint64_t>(
      std::count_if(cached.begin(), cached.end(), [](unsigned char page) { return (page & 1) != 0; }));
}

std::optional<uint32_t> DirectAlignment(int fd) {
  alignas(8) char answer[kStatxBytes] = {};
  if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, kStatxDirectAlignment, answer) != 0) return std::nullopt;
  if ((WordAt(answer, kAtMask) & kStatxDirectAlignment) == 0) return std::nullopt;
  const uint32_t memory = WordAt(answer, kAtMemoryAlignment);
  const uint32_t offset = WordAt(answer, kAtOffsetAlignment);
  return memory == 0 || offset == 0 ? 0 : std::max(memory, offset);
}

}  // namespace spillway::io
