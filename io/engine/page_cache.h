// The kernel's answers about a file and its page cache: whether transfers may be direct, and whether moved
// bytes lie in the cache. Neither follows from a successful open with O_DIRECT. The probe asks after its
// transfers. Any thread. Nothing fails: a fact that the kernel does not report is unknown.

#ifndef SPILLWAY_IO_ENGINE_PAGE_CACHE_H_
#define SPILLWAY_IO_ENGINE_PAGE_CACHE_H_

#include <cstdint>
#include <optional>

namespace spillway::io {

// Number of pages of the first `bytes` of an open file that lie in the page cache; nothing when that cannot
// be found out.
std::optional<uint64_t> CachedPages(int fd, uint64_t bytes);

// The number of bytes of which offsets, lengths and addresses of the file's direct transfers must be
// multiples. 0 when there are no direct transfers. Nothing on kernels before 6.1, and for file systems that
// do not report it.
std::optional<uint32_t> DirectAlignment(int fd);

}  // namespace spillway::io

#endif  // SPILLWAY_IO_ENGINE_PAGE_CACHE_H_
