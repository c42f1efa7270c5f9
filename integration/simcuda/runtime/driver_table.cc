// Opening the driver: see driver_table.h. The look-up order (the resolver first, itself re-asked through itself,
// then every function in its plain and its per-thread form) is the one that interposers meet under NVIDIA's
// runtime.
#include "integration/simcuda/runtime/driver_table.h"

#include <dlfcn.h>

#include <atomic>
#include <mutex>

namespace simcuda {
namespace {

constexpr cuuint64_t kPlainStream = CU_GET_PROC_ADDRESS_DEFAULT;
constexpr cuuint64_t kPerThreadStream = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

// One resolver over both forms of cuGetProcAddress: drivers before 12.0 have only the first.
class Resolver {
 public:
  explicit Resolver(void* library) {
    v2_ = reinterpret_cast<PFN_cuGetProcAddress_v12000>(dlsym(library, "cuGetProcAddress_v2"));
    if (v2_ == nullptr) {
      v1_ = reinterpret_cast<PFN_cuGetProcAddress_v11030>(dlsym(library, "cuGetProcAddress"));
      return;
    }
    void* again = Find("cuGetProcAddress", 12000, kPlainStream);
    if (again != nullptr) v2_ = reinterpret_cast<PFN_cuGetProcAddress_v12000>(again);
  }

  bool usable() const { return v1_ != nullptr || v2_ != nullptr; }
  void* v2() const { return reinterpret_cast<void*>(v2_); }

  void* Find(const char* name, int version, cuuint64_t flags) const {
    void* address = nullptr;
    CUdriverProcAddressQueryResult why;
    const CUresult result =
        v2_ != nullptr ? v2_(name, &address, version, flags, &why) : v1_(name, &address, version, flags);
    return result == CUDA_SUCCESS ? address : nullptr;
  }

 private:
  PFN_cuGetProcAddress_v11030 v1_ = nullptr;
  PFN_cuGetProcAddress_v12000 v2_ = nullptr;
};

void Fill(const Resolver& resolver, DriverTable* table) {
  struct Row {
    const char* name;
    int per_thread_version;
  };
#define DRIVER_ENTRY(name, version, per_thread_version) \
  table->name.Set(resolver.Find("cu" #name, version, kPlainStream));
#include "integration/simcuda/runtime/driver_entries.def"
#undef DRIVER_ENTRY
  // This library's own prototypes are the plain ones (a caller's per-thread stream travels as its handle), so
  // the per-thread forms are only looked up.
  static constexpr Row kRows[] = {
#define DRIVER_ENTRY(name, version, per_thread_version) {"cu" #name, per_thread_version},
#include "integration/simcuda/runtime/driver_entries.def"
#undef DRIVER_ENTRY
  };
  for (const Row& row : kRows) {
    if (row.per_thread_version != 0) resolver.Find(row.name, row.per_thread_version, kPerThreadStream);
  }
  table->GetProcAddress.Set(resolver.v2());
}

}  // namespace

const DriverTable* LoadedDriver() {
  // `ready` is stored after the table is filled, and pairs with the load below.
  static std::atomic<const DriverTable*> ready{nullptr};
  static std::mutex mu;
  static DriverTable table;

  if (const DriverTable* loaded = ready.load(std::memory_order_acquire)) return loaded;
  std::lock_guard<std::mutex> lock(mu);
  if (const DriverTable* loaded = ready.load(std::memory_order_acquire)) return loaded;
  // Never closed: other libraries keep pointers into it until the process ends.
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return nullptr;
  const Resolver resolver(library);
  if (!resolver.usable()) return nullptr;
  Fill(resolver, &table);
  ready.store(&table, std::memory_order_release);
  return &table;
}

}  // namespace simcuda
