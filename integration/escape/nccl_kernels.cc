#include "integration/escape/nccl_kernels.h"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstring>

namespace spillway::integration {
namespace {

// ---- Versions.

constexpr std::string_view kVersionFunction = "ncclGetVersion";
using GetVersion = int (*)(int* version);

// The tables of one loaded object that a look-up by name needs.
struct Object {
  ElfW(Addr) base = 0;
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  const uint32_t* gnu_hash = nullptr;
};

// Returns a table's address. The loader has made most of them absolute, but not those of every object (the
// vDSO's stay relative).
template <typename T>
const T* At(ElfW(Addr) base, ElfW(Addr) value) {
  return reinterpret_cast<const T*>(value < base ? base + value : value);
}

Object Describe(const dl_phdr_info& info) {
  Object object;
  object.base = info.dlpi_addr;
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    if (info.dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    const auto* entry = reinterpret_cast<const ElfW(Dyn)*>(info.dlpi_addr + info.dlpi_phdr[i].p_vaddr);
    for (; entry->d_tag != DT_NULL; ++entry) {
      const ElfW(Addr) value = entry->d_un.d_ptr;
      if (entry->d_tag == DT_SYMTAB) object.symbols = At<ElfW(Sym)>(object.base, value);
      if (entry->d_tag == DT_STRTAB) object.strings = At<char>(object.base, value);
      if (entry->d_tag == DT_GNU_HASH) object.gnu_hash = At<uint32_t>(object.base, value);
    }
  }
  return object;
}

constexpr uint32_t GnuHash(std::string_view name) {
  uint32_t hash = 5381;
  for (const char c : name) hash = hash * 33 + static_cast<unsigned char>(c);
  return hash;
}

// Returns the object's own definition of the function, found by its GNU hash table; null if it has none.
GetVersion Find(const Object& object) {
  if (object.symbols == nullptr || object.strings == nullptr || object.gnu_hash == nullptr) return nullptr;
  const uint32_t buckets = object.gnu_hash[0];
  const uint32_t first = object.gnu_hash[1];
  const uint32_t filter_words = object.gnu_hash[2];
  const uint32_t* const bucket = object.gnu_hash + 4 + filter_words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t* const chain = bucket + buckets;
  constexpr uint32_t kHash = GnuHash(kVersionFunction);
  if (buckets == 0 || bucket[kHash % buckets] < first) return nullptr;
  for (uint32_t at = bucket[kHash % buckets];; ++at) {
    const ElfW(Sym)& symbol = object.symbols[at];
    if ((chain[at - first] | 1) == (kHash | 1) && kVersionFunction == object.strings + symbol.st_name &&
        symbol.st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol.st_info) == STT_FUNC) {
      return reinterpret_cast<GetVersion>(object.base + symbol.st_value);
    }
    if ((chain[at - first] & 1) != 0) return nullptr;
  }
}

int Collect(dl_phdr_info* info, size_t, void* found) {
  if (const GetVersion function = Find(Describe(*info)); function != nullptr) {
    static_cast<std::vector<GetVersion>*>(found)->push_back(function);
  }
  return 0;
}

// ---- Kernels and their arguments.

constexpr size_t kArgumentBytes = 4096;

// The head of ncclDevKernelArgs; the batches and, if they fit, the works make up the rest.
struct Head {
  uint64_t comm;
  uint64_t channel_mask;
  uint8_t storage;  // 0: in the arguments, 1: in the queue, 2: in a buffer of a graph's own
  uint8_t unused[3];
  uint32_t work_mask;
  uint64_t work_buffer;
};
static_assert(sizeof(Head) == 32);
static_assert(offsetof(Head, storage) == 16 && offsetof(Head, work_buffer) == 24);
constexpr uint8_t kInArguments = 0;

// The versions whose arguments were compared with the kernels of their wheels
// (tests/cubins/nccl_arguments.py).
constexpr int kKnown[] = {228, 229, 230};

// A function outside of all namespaces is mangled as _Z, its length, its name, its parameters.
std::string_view Unmangled(std::string_view name) {
  if (!name.starts_with("_Z")) return name;
  name.remove_prefix(2);
  name.remove_prefix(std::min(name.find_first_not_of("0123456789"), name.size()));
  return name;
}

}  // namespace

std::vector<int> LoadedNcclVersions() {
  std::vector<GetVersion> functions;
  dl_iterate_phdr(&Collect, &functions);
  std::vector<int> versions;
  for (const GetVersion get : functions) {  // called only now, when the loader's lock is free again
    int version = 0;
    versions.push_back(get(&version) == 0 ? version : 0);
  }
  return versions;
}

bool IsNcclName(std::string_view name) {
  const std::string_view plain = Unmangled(name);
  return plain.starts_with("ncclDevKernel_") || plain.starts_with("ncclKernel_");
}

bool IsKnownNccl(int version) { return std::ranges::find(kKnown, version / 100) != std::end(kKnown); }

NcclKernel RecognizeNccl(std::string_view name, size_t params, size_t bytes,
                         const std::vector<int>& versions) {
  if (!IsNcclName(name)) return NcclKernel::kNone;
  const bool known = !versions.empty() && std::ranges::all_of(versions, IsKnownNccl);
  return known && params == 1 && bytes == kArgumentBytes ? NcclKernel::kFollowed : NcclKernel::kUnknown;
}

bool NcclWorksAreInArguments(const void* bytes, size_t size) {
  if (bytes == nullptr || size < sizeof(Head) || size > kArgumentBytes) return false;
  Head head;
  std::memcpy(&head, bytes, sizeof(head));
  // NCCL sets no buffer and masks no offset when the works lie in the arguments.
  return head.storage == kInArguments && head.work_buffer == 0 && head.work_mask == ~uint32_t{0};
}

}  // namespace spillway::integration
