/* Walks the words of this process's private memory that differ from a file: heaps, stacks, data segments, and
 * read-only data that the loader has relocated. For rebind.c, which looks for pointers into the driver. Memory
 * is read through the kernel, so that what another thread unmaps meanwhile costs an error and no crash. */

#include "integration/preload/shim.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { kPage = 4096, kPages = 64 }; /* looked at at once */

/* Bits of /proc/self/pagemap: in memory or in swap space; a page of a file, unchanged, or shared. */
static const uint64_t kThere = UINT64_C(3) << 62, kOfFile = UINT64_C(1) << 61;

/* Of the one thread that walks. */
static uint64_t words_[kPages * kPage / sizeof(uint64_t)];
static uint64_t pages_[kPages];

/* Some pages of one mapping. */
struct Run {
  uintptr_t first;
  size_t pages;
  int writable;
};

static int IsExcluded(const struct WordWalk* walk, uintptr_t page) {
  for (size_t i = 0; i < walk->excluded_count; ++i) {
    if (page + kPage > walk->excluded[i].first && page < walk->excluded[i].end) return 1;
  }
  return 0;
}

static int VisitRun(const struct WordWalk* walk, struct Run run) {
  while (run.pages > 0) {
    struct iovec here = {words_, run.pages * kPage}, there = {(void*)run.first, run.pages * kPage};
    ssize_t got = process_vm_readv(getpid(), &here, 1, &there, 1, 0);
    size_t count = got > 0 ? (size_t)got / sizeof(words_[0]) : 0;
    for (size_t i = 0; i < count; ++i) {
      if (words_[i] < walk->values.first || words_[i] >= walk->values.end) continue;
      int stop = walk->visit(walk->data, run.first + i * sizeof(words_[0]), words_[i], run.writable);
      if (stop) return stop;
    }
    size_t done = count * sizeof(words_[0]) / kPage;
    if (done < run.pages) ++done; /* the page that could not be read is gone */
    run.first += done * kPage;
    run.pages -= done;
  }
  return 0;
}

/* At most kPages pages. */
static int VisitPages(const struct WordWalk* walk, int pagemap, struct Run run) {
  size_t bytes = run.pages * sizeof(pages_[0]);
  off_t place = (off_t)(run.first / kPage * sizeof(pages_[0]));
  if (pagemap < 0 || pread(pagemap, pages_, bytes, place) != (ssize_t)bytes) {
    for (size_t i = 0; i < run.pages; ++i) pages_[i] = kThere; /* not known: all are looked at */
  }
  struct Run part = {run.first, 0, run.writable};
  for (size_t i = 0; i < run.pages; ++i) {
    uintptr_t page = run.first + i * kPage;
    if ((pages_[i] & kThere) && !(pages_[i] & kOfFile) && !IsExcluded(walk, page)) {
      ++part.pages;
      continue;
    }
    int stop = VisitRun(walk, part);
    if (stop) return stop;
    part = (struct Run){page + kPage, 0, run.writable};
  }
  return VisitRun(walk, part);
}

/* A line of /proc/self/maps that is private and readable memory. */
static int ParseMapping(const char* line, struct Run* mapping) {
  unsigned long first, end;
  char rights[5];
  if (sscanf(line, "%lx-%lx %4s", &first, &end, rights) != 3) return 0;
  *mapping = (struct Run){first, (end - first) / kPage, rights[1] == 'w'};
  return rights[0] == 'r' && rights[3] == 'p' && !strstr(line, "[v"); /* [vdso], [vvar], [vsyscall] */
}

int WalkWords(const struct WordWalk* walk) {
  FILE* maps = fopen("/proc/self/maps", "re");
  if (!maps) return -1;
  int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  char line[4200];
  struct Run mapping;
  int stop = 0;
  while (!stop && fgets(line, sizeof(line), maps)) {
    if (!ParseMapping(line, &mapping)) continue;
    while (!stop && mapping.pages > 0) {
      struct Run part = mapping;
      if (part.pages > kPages) part.pages = kPages;
      stop = VisitPages(walk, pagemap, part);
      mapping.first += part.pages * kPage;
      mapping.pages -= part.pages;
    }
  }
  if (pagemap >= 0) close(pagemap);
  fclose(maps);
  return stop;
}
