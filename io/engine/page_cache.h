// What the kernel says of a file and its page cache: whether transfers may be direct, and whether what was moved lies
// in the cache. That a file could be opened with O_DIRECT says neither. The probe asks after its transfers. Any
// thread; nothing fails: what the kernel does not tell is not known.

#ifndef SPILLWAY_IO_ENGINE_PAGE_CACHE_H_
#define SPILLWAY_IO_ENGINE_PAGE_CACHE_H_

#include <cstdint>
#include <optional>

namespace spillway::io {

// How many pages of the first `bytes` of an open file lie in the page cache; nothing when that cannot be found out.
std::optional<uint64_t> CachedPages(int fd, uint64_t bytes);

// What direct transfers of the file must be multiples of, in bytes: offsets, lengths and addresses. 0: there are no
// direct transfers. Nothing on kernels before 6.1, and for file systems that do not say.
std::optional<uint32_t> DirectAlignment(int fd);

}  // namespace spillway::io

#endif  // SPILLWAY_IO_ENGINE_PAGE_CACHE_H_
