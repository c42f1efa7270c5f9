/* Where the real driver may lie, in the order in which ld.so would look for libcuda.so.1, and then the places where
 * containers put it. dlopen("libcuda.so.1") itself is of no use here: that name is ours. */

#include "integration/preload/shim.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char kName[] = "libcuda.so.1";

static int VisitIn(const char* directory, size_t bytes, int (*visit)(const char* path)) {
  char path[4096];
  if (bytes == 0) { /* ld.so takes an empty entry as the working directory */
    directory = ".";
    bytes = 1;
  }
  int length = snprintf(path, sizeof(path), "%.*s/%s", (int)bytes, directory, kName);
  if (length < 0 || (size_t)length >= sizeof(path) || access(path, R_OK) != 0) return 0;
  return visit(path);
}

static int VisitLibraryPath(int (*visit)(const char* path)) {
  const char* rest = getenv("LD_LIBRARY_PATH");
  if (!rest || !*rest) return 0;
  for (;;) {
    size_t bytes = strcspn(rest, ":;");
    if (VisitIn(rest, bytes, visit)) return 1;
    if (rest[bytes] == '\0') return 0;
    rest += bytes + 1;
  }
}

/* /etc/ld.so.cache, new format (glibc >= 2.2), as its public description in dl-cache.h has it. */
struct CacheHeader {
  char magic[20]; /* "glibc-ld.so.cache1.1" */
  uint32_t libraries;
  uint32_t string_bytes;
  uint32_t unused[5];
};
struct CacheEntry {
  int32_t flags;
  uint32_t key;   /* offsets of strings, from the header */
  uint32_t value;
  uint32_t os_version;
  uint64_t hardware;
};
static const char kCacheMagic[] = "glibc-ld.so.cache1.1";
enum { kCacheFlagsX8664 = 0x0303 }; /* ELF for libc6, x86-64 */

/* The string at `offset`, NULL unless it ends inside the file. */
static const char* CacheString(const char* start, size_t bytes, uint32_t offset) {
  if (offset >= bytes || !memchr(start + offset, '\0', bytes - offset)) return NULL;
  return start + offset;
}

static int VisitCacheEntries(const char* file, size_t file_bytes, int (*visit)(const char* path)) {
  /* An old-format cache may come before the new one. */
  const char* start = memmem(file, file_bytes, kCacheMagic, strlen(kCacheMagic));
  if (!start) return 0;
  size_t bytes = file_bytes - (size_t)(start - file);
  struct CacheHeader header;
  if (bytes < sizeof(header)) return 0;
  memcpy(&header, start, sizeof(header));
  if (header.libraries > (bytes - sizeof(header)) / sizeof(struct CacheEntry)) return 0;
  for (uint32_t i = 0; i < header.libraries; ++i) {
    struct CacheEntry entry;
    memcpy(&entry, start + sizeof(header) + i * sizeof(entry), sizeof(entry));
    const char* key = CacheString(start, bytes, entry.key);
    const char* value = CacheString(start, bytes, entry.value);
    if (entry.flags != kCacheFlagsX8664 || !key || !value || strcmp(key, kName) != 0) continue;
    if (access(value, R_OK) == 0 && visit(value)) return 1;
  }
  return 0;
}

static int VisitCache(int (*visit)(const char* path)) {
  int fd = open("/etc/ld.so.cache", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  struct stat facts;
  void* file = MAP_FAILED;
  if (fstat(fd, &facts) == 0 && facts.st_size > 0) {
    file = mmap(NULL, (size_t)facts.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  }
  close(fd);
  if (file == MAP_FAILED) return 0;
  int taken = VisitCacheEntries(file, (size_t)facts.st_size, visit);
  munmap(file, (size_t)facts.st_size);
  return taken;
}

int VisitDriverCandidates(const char* hint, int (*visit)(const char* path)) {
  static const char* const kDirectories[] = {
      /* ld.so's own, Debian's and the others' */
      "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib",
      /* the container toolkit, WSL, forward compatibility, NixOS */
      "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/wsl/lib", "/usr/local/cuda/compat",
      "/run/opengl-driver/lib"};
  const char* named = Setting("cuda_driver");
  if (named) return visit(named); /* the user's word is not second-guessed */
  if (VisitLibraryPath(visit) || VisitCache(visit)) return 1;
  for (size_t i = 0; i < sizeof(kDirectories) / sizeof(kDirectories[0]); ++i) {
    if (VisitIn(kDirectories[i], strlen(kDirectories[i]), visit)) return 1;
  }
  return hint && access(hint, R_OK) == 0 && visit(hint);
}
