/* Takes over a driver that was in the process before this library, as it is after `import torch`: cuBLAS
 * opens it in its constructor and keeps what it looks up. Those addresses, in the data of loaded libraries,
 * are made to name the function table's trampolines, and so is the driver's own symbol table, from which
 * later look-ups are answered. This is done only before the driver is initialized: no call that matters has
 * been made by then, and the CUDA runtime has not asked yet. docs/decisions/0018-enabling-late.md lists what
 * is missed. */

#include "integration/preload/shim.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

struct AddressRange {
  uintptr_t first, end;
};

enum { kPage = 4096, kPages = 512 /* pages whose state is asked for at once */ };

/* Bits of /proc/self/pagemap: the page is in memory or in swap space; it is an unchanged page of a file. */
static const uint64_t kThere = UINT64_C(3) << 62, kOfFile = UINT64_C(1) << 61;

/* The driver as the loader has mapped it. */
struct Image {
  uintptr_t base;
  struct AddressRange range; /* of all its segments */
  const ElfW(Dyn) * dynamic;
};

struct Search {
  uintptr_t address; /* in the image that is searched for */
  struct Image image;
};

static int TakeImage(struct dl_phdr_info* info, size_t size, void* data) {
  (void)size;
  struct Search* search = data;
  struct Image image = {info->dlpi_addr, {UINTPTR_MAX, 0}, NULL};
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* segment = &info->dlpi_phdr[i];
    uintptr_t first = info->dlpi_addr + segment->p_vaddr;
    if (segment->p_type == PT_DYNAMIC) image.dynamic = (const ElfW(Dyn)*)first;
    if (segment->p_type != PT_LOAD) continue;
    if (first < image.range.first) image.range.first = first;
    if (first + segment->p_memsz > image.range.end) image.range.end = first + segment->p_memsz;
  }
  if (search->address < image.range.first || search->address >= image.range.end) return 0;
  search->image = image;
  return 1;
}

static int FindImage(const void* address, struct Image* image) {
  struct Search search = {(uintptr_t)address, {0, {0, 0}, NULL}};
  if (!dl_iterate_phdr(TakeImage, &search)) return 0;
  *image = search.image;
  return image->dynamic != NULL;
}

/* Returns the address that an entry of the dynamic section names. The loader relocates some entries in place.
 */
static uintptr_t DynamicAddress(const struct Image* image, ElfW(Sxword) tag) {
  for (const ElfW(Dyn)* entry = image->dynamic; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag != tag) continue;
    return entry->d_un.d_ptr >= image->base ? entry->d_un.d_ptr : image->base + entry->d_un.d_ptr;
  }
  return 0;
}

/* Returns the number of symbols, by either form of hash table; 0 if neither is there. */
static size_t CountSymbols(const struct Image* image) {
  const uint32_t* table = (const uint32_t*)DynamicAddress(image, DT_HASH);
  if (table) return table[1];
  table = (const uint32_t*)DynamicAddress(image, DT_GNU_HASH);
  if (!table) return 0;
  uint32_t buckets = table[0], first = table[1], last = 0;
  const uint32_t* bucket = table + 4 + (size_t)table[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t* chain = bucket + buckets;
  for (uint32_t i = 0; i < buckets; ++i) {
    if (bucket[i] > last) last = bucket[i];
  }
  if (last < first) return first;
  while (!(chain[last - first] & 1)) ++last;
  return last + 1;
}

struct Symbols {
  const struct Image* image;
  ElfW(Sym) * all;
  const char* names;
  size_t count;
};

static int FindSymbols(const struct Image* image, struct Symbols* symbols) {
  *symbols = (struct Symbols){image, (ElfW(Sym)*)DynamicAddress(image, DT_SYMTAB),
                              (const char*)DynamicAddress(image, DT_STRTAB), CountSymbols(image)};
  return symbols->all && symbols->names && symbols->count > 0;
}

static int IsOfInterface(const char* name) {
  return name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

/* Returns the name of a function of the driver's interface at that address; NULL if there is none. */
static const char* FunctionAt(const struct Symbols* symbols, uintptr_t address) {
  for (size_t i = 0; i < symbols->count; ++i) {
    const ElfW(Sym)* symbol = &symbols->all[i];
    const char* name = symbols->names + symbol->st_name;
    if (symbol->st_value == 0 || symbols->image->base + symbol->st_value != address) continue;
    if (IsOfInterface(name)) return name;
  }
  return NULL;
}

/* Writes to memory that may be read-only. Returns 0 if it cannot be written. */
static int WriteWord(uintptr_t place, uint64_t value, int writable) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  void* start = (void*)(place / page * page);
  if (!writable && mprotect(start, page, PROT_READ | PROT_WRITE) != 0) return 0;
  __atomic_store_n((uint64_t*)place, value, __ATOMIC_RELEASE);
  if (!writable) mprotect(start, page, PROT_READ);
  return 1;
}

/* Makes look-ups of the driver's functions find the trampolines from now on. Functions that the table does
 * not have are not found, as with this library in the driver's place. */
static int RedirectSymbols(const struct Symbols* symbols) {
  for (size_t i = 0; i < symbols->count; ++i) {
    ElfW(Sym)* symbol = &symbols->all[i];
    const char* name = symbols->names + symbol->st_name;
    if (symbol->st_value == 0 || !IsOfInterface(name)) continue;
    int row = FindRow(name);
    uintptr_t value = row >= 0 ? (uintptr_t)RowTrampoline(row) - symbols->image->base : 0;
    if (!WriteWord((uintptr_t)&symbol->st_value, value, 0)) return 0;
  }
  return 1;
}

/* The input and the results of the walk over the data of libraries. */
struct Takeover {
  const struct Image *driver, *own; /* the two whose data is left alone */
  const struct Symbols* symbols;
  int pagemap; /* -1: it cannot be read, and all pages are looked at */
  /* Gets a word that was an address in the driver a moment ago. Any result but 0 ends the walk. */
  int (*visit)(struct Takeover* takeover, uintptr_t place, uint64_t value, int writable);
  const char* unknown; /* a function that somebody has looked up and the table does not have */
  long rewritten;
};

static int CheckWord(struct Takeover* takeover, uintptr_t place, uint64_t value, int writable) {
  (void)place;
  (void)writable;
  if (RowAtReal((const void*)value) < 0) takeover->unknown = FunctionAt(takeover->symbols, value);
  return takeover->unknown != NULL;
}

static int RewriteWord(struct Takeover* takeover, uintptr_t place, uint64_t value, int writable) {
  int row = RowAtReal((const void*)value);
  if (row < 0) return 0;
  if (!WriteWord(place, (uint64_t)RowTrampoline(row), writable)) return 1;
  ++takeover->rewritten;
  return 0;
}

/* Returns the range that the loader made read-only after it had filled it; empty if there is none. */
static struct AddressRange ClosedRange(const struct dl_phdr_info* info) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* segment = &info->dlpi_phdr[i];
    if (segment->p_type != PT_GNU_RELRO) continue;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = info->dlpi_addr + segment->p_vaddr;
    return (struct AddressRange){first / page * page, (first + segment->p_memsz) / page * page};
  }
  return (struct AddressRange){0, 0};
}

static int IsIn(uintptr_t address, const struct AddressRange* range) {
  return address >= range->first && address < range->end;
}

/* Visits the words of `range`, which lies in one page. Reads through the kernel, so data that a library has
 * closed costs an error and no crash. */
static int VisitPage(struct Takeover* takeover, struct AddressRange range, struct AddressRange closed) {
  static uint64_t words[kPage / sizeof(uint64_t)]; /* of the one thread that walks */
  struct iovec here = {words, range.end - range.first}, there = {(void*)range.first, here.iov_len};
  ssize_t got = process_vm_readv(getpid(), &here, 1, &there, 1, 0);
  if (got < 0) return errno != EFAULT;
  for (size_t i = 0; i < (size_t)got / sizeof(words[0]); ++i) {
    uintptr_t place = range.first + i * sizeof(words[0]);
    if (!IsIn(words[i], &takeover->driver->range)) continue;
    int stop = takeover->visit(takeover, place, words[i], !IsIn(place, &closed));
    if (stop) return stop;
  }
  return 0;
}

/* Reads the entries of /proc/self/pagemap from that page on. If it cannot be read, all pages count as
 * written. */
static void ReadPagemap(int pagemap, uintptr_t first, uint64_t pages[kPages]) {
  size_t bytes = kPages * sizeof(pages[0]);
  ssize_t got = pagemap < 0 ? 0 : pread(pagemap, pages, bytes, (off_t)(first / kPage * sizeof(pages[0])));
  for (size_t i = got > 0 ? (size_t)got / sizeof(pages[0]) : 0; i < kPages; ++i) pages[i] = kThere;
}

/* Visits the data of a library that the process has written; the rest may be hundreds of megabytes of
 * kernels. */
static int VisitRange(struct Takeover* takeover, struct AddressRange range, struct AddressRange closed) {
  static uint64_t pages[kPages];
  size_t next = 0;
  for (uintptr_t start = range.first / kPage * kPage; start < range.end; start += kPage) {
    if (next == 0) ReadPagemap(takeover->pagemap, start, pages);
    uint64_t entry = pages[next];
    next = (next + 1) % kPages;
    if (!(entry & kThere) || (entry & kOfFile)) continue;
    struct AddressRange page = {start, start + kPage};
    if (page.first < range.first) page.first = range.first;
    if (page.end > range.end) page.end = range.end;
    int stop = VisitPage(takeover, page, closed);
    if (stop) return stop;
  }
  return 0;
}

/* Libraries stay loaded meanwhile, since dl_iterate_phdr has the loader's lock. */
static int VisitLibrary(struct dl_phdr_info* info, size_t size, void* data) {
  (void)size;
  struct Takeover* takeover = data;
  if (info->dlpi_addr == takeover->driver->base || info->dlpi_addr == takeover->own->base) return 0;
  int stop = 0;
  for (int i = 0; i < info->dlpi_phnum && !stop; ++i) {
    const ElfW(Phdr)* segment = &info->dlpi_phdr[i];
    if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_W)) continue;
    uintptr_t first = info->dlpi_addr + segment->p_vaddr, end = first + segment->p_memsz;
    struct AddressRange range = {(first + 7) / 8 * 8, end / 8 * 8};
    if (range.first < range.end) stop = VisitRange(takeover, range, ClosedRange(info));
  }
  return stop;
}

__attribute__((format(printf, 3, 4))) static long Refuse(char* why, size_t bytes, const char* format, ...) {
  va_list values;
  va_start(values, format);
  vsnprintf(why, bytes, format, values);
  va_end(values);
  return -1;
}

/* Makes a call that needs an initialized driver and changes nothing. */
static int IsInitialized(void) {
  int row = FindRow("cuDeviceGetCount"), count = 0;
  int (*get)(int*) = row < 0 ? NULL : (int (*)(int*))RowReal(row);
  return !get || get(&count) != kCudaNotInitialized;
}

long RebindDriver(char* why, size_t bytes) {
  if (!PrepareDriver()) return Refuse(why, bytes, "the driver is just being opened");
  if (!DriverWasAlreadyLoaded()) return 0;
  if (IsInitialized()) return Refuse(why, bytes, "the driver has been initialized");
  struct Image driver, own;
  struct Symbols symbols;
  if (!FindImage(RowReal(FindRow("cuInit")), &driver) || !FindImage(RowTrampoline(0), &own) ||
      !FindSymbols(&driver, &symbols)) {
    return Refuse(why, bytes, "the symbol table of %s was not found", DriverPath());
  }
  int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  struct Takeover takeover = {&driver, &own, &symbols, pagemap, CheckWord, NULL, 0};
  int stopped = dl_iterate_phdr(VisitLibrary, &takeover);
  if (stopped == 0 && !RedirectSymbols(&symbols)) stopped = 1;
  takeover.visit = RewriteWord;
  if (stopped == 0) stopped = dl_iterate_phdr(VisitLibrary, &takeover);
  if (pagemap >= 0) close(pagemap);
  if (takeover.unknown) {
    return Refuse(why, bytes, "a library has looked up %s, which this version does not know",
                  takeover.unknown);
  }
  if (stopped != 0)
    return Refuse(why, bytes, "the data of this process's libraries cannot be read and written");
  RecordDriverRebound();
  return takeover.rewritten;
}
