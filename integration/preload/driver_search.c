/* The places where the real driver may lie, in the order in which ld.so would look for libcuda.so.1, and then
   the places where containers put it. dlopen("libcuda.so.1") itself is of no use here, since that name is
   ours. */

#include "integration/preload/shim.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char kName[] = "libcuda.so.1";

/* The directories that ld.so tries last, after its cache. */
static const char* const kSystemDirectories[] = {
    "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"};
/* The directories that ld.so may not know. */
static const char* const kOtherDirectories[] = {
#define DRIVER_DIRECTORY(path) path,
#include "integration/preload/driver_directories.def"
#undef DRIVER_DIRECTORY
};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static int VisitIn(const char* directory, int (*visit)(const char* path)) {
  char path[4096];
  int length = snprintf(path, sizeof(path), "%s/%s", *directory ? directory : ".", kName);
  if (length < 0 || (size_t)length >= sizeof(path) || access(path, R_OK) != 0) return 0;
  return visit(path);
}

static int VisitAll(const char* const* directories, size_t count, int (*visit)(const char* path)) {
  for (size_t i = 0; i < count; ++i) {
    if (VisitIn(directories[i], visit)) return 1;
  }
  return 0;
}

static int IsSystemDirectory(const char* directory) {
  for (size_t i = 0; i < COUNT(kSystemDirectories); ++i) {
    if (strcmp(directory, kSystemDirectories[i]) == 0) return 1;
  }
  return 0;
}

/* Visits LD_LIBRARY_PATH as the process started with it, and the program's own RPATH or RUNPATH, as the
   loader reports them. */
static int VisitLoaderPath(int (*visit)(const char* path)) {
  void* program = RealDlopen(NULL, RTLD_NOW);
  Dl_serinfo size;
  if (!program || dlinfo(program, RTLD_DI_SERINFOSIZE, &size) != 0) return 0;
  Dl_serinfo* list = malloc(size.dls_size);
  int taken = 0;
  if (list && dlinfo(program, RTLD_DI_SERINFOSIZE, list) == 0 &&
      dlinfo(program, RTLD_DI_SERINFO, list) == 0) {
    for (unsigned i = 0; !taken && i < list->dls_cnt; ++i) {
      const char* directory = list->dls_serpath[i].dls_name;
      if (!IsSystemDirectory(directory)) taken = VisitIn(directory, visit);
    }
  }
  free(list);
  dlclose(program);
  return taken;
}

/* /etc/ld.so.cache in the new format (glibc >= 2.2), as its public description in dl-cache.h has it. */
struct CacheHeader {
  char magic[20]; /* "glibc-ld.so.cache1.1" */
  uint32_t libraries;
  uint32_t string_bytes;
  uint32_t unused[5];
};
struct CacheEntry {
  int32_t flags;
  uint32_t key; /* offsets of strings, from the header */
  uint32_t value;
  uint32_t os_version;
  uint64_t hardware;
};
static const char kCacheMagic[] = "glibc-ld.so.cache1.1";
enum { kCacheFlagsX8664 = 0x0303 }; /* ELF for libc6, x86-64 */

/* Returns the string at `offset`; NULL unless it ends inside the file. */
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
  const char* named = Setting("cuda_driver");
  if (named && *named) return visit(named); /* the user's choice stands */
  if (VisitLoaderPath(visit) || VisitCache(visit)) return 1;
  if (VisitAll(kSystemDirectories, COUNT(kSystemDirectories), visit)) return 1;
  if (VisitAll(kOtherDirectories, COUNT(kOtherDirectories), visit)) return 1;
  return hint && access(hint, R_OK) == 0 && visit(hint);
}
