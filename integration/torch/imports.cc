#include "integration/torch/imports.h"

#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <new>

namespace spillway::integration {
namespace {

constexpr char kMaps[] = "/proc/self/maps";

// The imports in the dynamic section of a loaded library.
struct Imports {
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  const ElfW(Rela) * data = nullptr;  // bound at load
  size_t data_count = 0, relative_count = 0;
  const ElfW(Rela) * calls = nullptr;  // bound at load or at the first call
  size_t call_count = 0;
};

// The loader writes addresses into the section if it may; those of the kernel's own library stay offsets.
template <typename T>
const T* At(const struct dl_phdr_info& info, ElfW(Addr) value) {
  return reinterpret_cast<const T*>(value < info.dlpi_addr ? info.dlpi_addr + value : value);
}

Imports ReadImports(const struct dl_phdr_info& info, const ElfW(Dyn) * entry) {
  Imports found;
  for (; entry->d_tag != DT_NULL; ++entry) {
    const auto value = entry->d_un.d_val;
    switch (entry->d_tag) {
      case DT_SYMTAB: found.symbols = At<ElfW(Sym)>(info, value); break;
      case DT_STRTAB: found.names = At<char>(info, value); break;
      case DT_RELA: found.data = At<ElfW(Rela)>(info, value); break;
      case DT_RELASZ: found.data_count = value / sizeof(ElfW(Rela)); break;
      case DT_RELACOUNT: found.relative_count = value; break;
      case DT_JMPREL: found.calls = At<ElfW(Rela)>(info, value); break;
      case DT_PLTRELSZ: found.call_count = value / sizeof(ElfW(Rela)); break;
      default: break;
    }
  }
  return found;
}

// Returns the page's protection as it is now, since the loader takes the right to write away when it is done
// with a library.
bool IsWritable(const void* place) {
  std::FILE* maps = std::fopen(kMaps, "re");
  if (maps == nullptr) return false;
  const auto address = reinterpret_cast<uintptr_t>(place);
  bool writable = false;
  char line[512];
  while (std::fgets(line, sizeof(line), maps) != nullptr) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    char rights[5] = "";
    if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &begin, &end, rights) != 3) continue;
    if (address < begin || address >= end) continue;
    writable = rights[1] == 'w';
    break;
  }
  std::fclose(maps);
  return writable;
}

void* Load(void** place) { return std::atomic_ref<void*>(*place).load(std::memory_order_acquire); }

// Returns false if the page cannot be written.
bool Store(void** place, void* value) {
  const bool writable = IsWritable(place);
  const auto page_bytes = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  auto* const page = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(place) & ~(page_bytes - 1));
  if (!writable && ::mprotect(page, page_bytes, PROT_READ | PROT_WRITE) != 0) return false;
  std::atomic_ref<void*>(*place).store(value, std::memory_order_release);
  if (!writable) ::mprotect(page, page_bytes, PROT_READ);
  return true;
}

}  // namespace

// One walk over the loaded libraries. The loader keeps them, and its lists, while it calls back.
class ImportedFunction::Walk {
 public:
  explicit Walk(ImportedFunction* function) : function_(function) {}

  size_t Run() ABSL_EXCLUSIVE_LOCKS_REQUIRED(function_->mu_) {
    ::dl_iterate_phdr(&Walk::OnLibrary, this);
    return redirected_;
  }

 private:
  static int OnLibrary(struct dl_phdr_info* info, size_t, void* walk) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    auto* const self = static_cast<Walk*>(walk);
    try {
      return self->Inspect(*info) ? 0 : 1;
    } catch (
        const std::bad_alloc&) {  // nothing may be thrown through the loader; the next walk is a complete one
      self->function_->walked_ = false;
      return 1;
    }
  }

  // Returns false to end the walk. Runs inside Run, so under the lock.
  bool Inspect(const struct dl_phdr_info& info) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    ImportedFunction& self = *function_;
    if (first_) {
      first_ = false;
      if (self.walked_ && info.dlpi_adds == self.loaded_ && info.dlpi_subs == self.unloaded_) {
        redirected_ = self.ChangeLocked();
        return false;
      }
      self.walked_ = true;
      self.loaded_ = info.dlpi_adds;
      self.unloaded_ = info.dlpi_subs;
      self.entries_.clear();
    }
    const size_t before = self.entries_.size();
    Collect(info);
    if (self.entries_.size() != before) redirected_ = self.ChangeLocked();
    return true;
  }

  void Collect(const struct dl_phdr_info& info) {
    const ElfW(Dyn)* dynamic = nullptr;
    uintptr_t begin = 0;
    uintptr_t end = 0;
    for (int i = 0; i < info.dlpi_phnum; ++i) {
      const ElfW(Phdr)& part = info.dlpi_phdr[i];
      const uintptr_t at = info.dlpi_addr + part.p_vaddr;
      if (part.p_type == PT_DYNAMIC) dynamic = reinterpret_cast<const ElfW(Dyn)*>(at);
      if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
      if (begin == 0) begin = at;
      end = at + part.p_memsz;
    }
    if (dynamic == nullptr) return;
    const Imports imports = ReadImports(info, dynamic);
    if (imports.symbols == nullptr || imports.names == nullptr) return;
    if (imports.calls != nullptr)
      Take(info, imports, imports.calls, imports.call_count, R_X86_64_JUMP_SLOT, begin, end);
    if (imports.data != nullptr && imports.data_count > imports.relative_count) {
      // Relative relocations come first, and name nothing.
      Take(info, imports, imports.data + imports.relative_count, imports.data_count - imports.relative_count,
           R_X86_64_GLOB_DAT, 0, 0);
    }
  }

  void Take(const struct dl_phdr_info& info, const Imports& imports, const ElfW(Rela) * first, size_t count,
            uint64_t kind, uintptr_t begin, uintptr_t end) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (const ElfW(Rela)* entry = first; entry != first + count; ++entry) {
      if (ELF64_R_TYPE(entry->r_info) != kind) continue;
      const ElfW(Sym)& symbol = imports.symbols[ELF64_R_SYM(entry->r_info)];
      if (function_->name_ != imports.names + symbol.st_name) continue;
      function_->entries_.push_back({reinterpret_cast<void**>(info.dlpi_addr + entry->r_offset), begin, end});
    }
  }

  ImportedFunction* const function_;
  bool first_ = true;
  size_t redirected_ = 0;
};

ImportedFunction::ImportedFunction(void* original, void* replacement)
    : original_(original), replacement_(replacement) {
  Dl_info info{};
  if (::dladdr(original, &info) != 0 && info.dli_sname != nullptr && info.dli_saddr == original)
    name_ = info.dli_sname;
}

bool ImportedFunction::IsOursToChange(const Entry& entry) const {
  void* const now = Load(entry.place);
  if (now == original_) return true;
  // An entry that is not bound yet leads back into the library's own code. It is an offset until the loader
  // has relocated it.
  const auto address = reinterpret_cast<uintptr_t>(now);
  return now != replacement_ && address >= entry.own_begin && address < entry.own_end;
}

size_t ImportedFunction::ChangeLocked() {
  size_t redirected = 0;
  for (const Entry& entry : entries_) {
    if (Load(entry.place) == replacement_ || (IsOursToChange(entry) && Store(entry.place, replacement_)))
      ++redirected;
  }
  return redirected;
}

size_t ImportedFunction::Redirect() {
  if (name_.empty()) return 0;
  os::MutexLock lock(&mu_);
  return Walk(this).Run();
}

}  // namespace spillway::integration
