#include "integration/escape/nccl_versions.h"

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>
#include <string_view>

namespace spillway::integration {
namespace {

constexpr std::string_view kName = "ncclGetVersion";
using GetVersion = int (*)(int* version);

// The tables of one loaded object that a look-up by name needs.
struct Object {
  ElfW(Addr) base = 0;
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  const uint32_t* gnu_hash = nullptr;
};

// The loader has made most of these addresses absolute, but not those of every object (the vDSO's).
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

// The object's own definition of the function, by its GNU hash table; null when it has none.
GetVersion Find(const Object& object) {
  if (object.symbols == nullptr || object.strings == nullptr || object.gnu_hash == nullptr) return nullptr;
  const uint32_t buckets = object.gnu_hash[0];
  const uint32_t first = object.gnu_hash[1];
  const uint32_t filter_words = object.gnu_hash[2];
  const uint32_t* const bucket = object.gnu_hash + 4 + filter_words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t* const chain = bucket + buckets;
  constexpr uint32_t kHash = GnuHash(kName);
  if (buckets == 0 || bucket[kHash % buckets] < first) return nullptr;
  for (uint32_t at = bucket[kHash % buckets];; ++at) {
    const ElfW(Sym)& symbol = object.symbols[at];
    if ((chain[at - first] | 1) == (kHash | 1) && kName == object.strings + symbol.st_name &&
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

}  // namespace

std::vector<int> LoadedNcclVersions() {
  std::vector<GetVersion> functions;
  dl_iterate_phdr(&Collect, &functions);
  std::vector<int> versions;
  for (const GetVersion get : functions) {  // called when the loader's lock is free again
    int version = 0;
    versions.push_back(get(&version) == 0 ? version : 0);
  }
  return versions;
}

}  // namespace spillway::integration
