#include "integration/hooks/function_registry.h"

#include <dlfcn.h>

#include <utility>

namespace spillway::integration {
namespace {

constexpr size_t kFirstCapacity = 1024;
// A driver that never says "past the end" must not hang the launch: 32,764 bytes of parameters are the most.
constexpr size_t kMostParams = 32764;

// Path of the shared object that `address` lies in; empty for memory of no object.
std::string_view ObjectAt(const void* address) {
  Dl_info info = {};
  if (address == nullptr || dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "";
  return info.dli_fname;
}

}  // namespace

// ---- Where kernels come from.

std::string ModuleOrigins::FileNameOf(std::string_view path) {
  return std::string(path.substr(path.find_last_of('/') + 1));
}

std::string ModuleOrigins::LibraryAt(const void* image, const void* caller) {
  const std::string_view holder = ObjectAt(image);
  return FileNameOf(holder.empty() ? ObjectAt(caller) : holder);
}

void ModuleOrigins::Note(const void* handle, bool is_library, std::string file) {
  os::MutexLock lock(&mu_);
  origins_[handle] = {is_library, std::move(file)};
}

std::string ModuleOrigins::Find(const void* handle) const {
  os::MutexLock lock(&mu_);
  const auto found = origins_.find(handle);
  return found == origins_.end() ? "" : found->second.file;
}

std::vector<CUlibrary> ModuleOrigins::Libraries() const {
  os::MutexLock lock(&mu_);
  std::vector<CUlibrary> libraries;
  for (const auto& [handle, origin] : origins_) {
    if (origin.is_library) libraries.push_back(static_cast<CUlibrary>(const_cast<void*>(handle)));
  }
  return libraries;
}

// ---- What the driver answers.

FunctionQueries::Answer DriverFunctionQueries::ParamSize(void* handle, bool is_kernel, size_t index,
                                                         size_t* bytes) const {
  size_t offset = 0;
  CUresult result = CUDA_ERROR_NOT_SUPPORTED;
  if (is_kernel) {
    if (const auto ask = real_->Get<Row::cuKernelGetParamInfo>()) {
      result = ask(static_cast<CUkernel>(handle), index, &offset, bytes);
    }
  } else if (const auto ask = real_->Get<Row::cuFuncGetParamInfo>()) {
    result = ask(static_cast<CUfunction>(handle), index, &offset, bytes);
  }
  if (result == CUDA_SUCCESS) return Answer::kOk;
  return result == CUDA_ERROR_INVALID_VALUE ? Answer::kPastEnd : Answer::kFailed;
}

bool DriverFunctionQueries::Name(void* handle, bool is_kernel, std::string* name) const {
  const char* text = nullptr;
  CUresult result = CUDA_ERROR_NOT_SUPPORTED;
  if (is_kernel) {
    if (const auto ask = real_->Get<Row::cuKernelGetName>())
      result = ask(&text, static_cast<CUkernel>(handle));
  } else if (const auto ask = real_->Get<Row::cuFuncGetName>()) {
    result = ask(&text, static_cast<CUfunction>(handle));
  }
  if (result != CUDA_SUCCESS || text == nullptr) return false;
  *name = text;
  return true;
}

void* DriverFunctionQueries::Owner(void* handle, bool is_kernel) const {
  if (is_kernel) {
    CUlibrary library = nullptr;
    const auto ask = real_->Get<Row::cuKernelGetLibrary>();
    return ask != nullptr && ask(&library, static_cast<CUkernel>(handle)) == CUDA_SUCCESS ? library : nullptr;
  }
  CUmodule module = nullptr;
  const auto ask = real_->Get<Row::cuFuncGetModule>();
  return ask != nullptr && ask(&module, static_cast<CUfunction>(handle)) == CUDA_SUCCESS ? module : nullptr;
}

std::string DriverFunctionQueries::LibraryOf(void* owner) const {
  if (owner == nullptr || !origins_->enabled()) return "";
  std::string library = origins_->Find(owner);
  const auto module_of = real_->Get<Row::cuLibraryGetModule>();
  if (!library.empty() || module_of == nullptr) return library;
  // A CUfunction that came from a CUkernel belongs to a module that was not loaded as one.
  for (const CUlibrary candidate : origins_->Libraries()) {
    CUmodule module = nullptr;
    if (module_of(&module, candidate) == CUDA_SUCCESS && module == owner) return origins_->Find(candidate);
  }
  return "";
}

// ---- The registry.

FunctionRegistry::FunctionRegistry(const FunctionQueries* queries) : queries_(queries) {
  auto table = std::make_unique<Table>(kFirstCapacity);
  table_.store(table.get(), std::memory_order_release);
  os::MutexLock lock(&mu_);
  tables_.push_back(std::move(table));
}

FunctionRegistry::~FunctionRegistry() = default;

void FunctionRegistry::NoteKernel(void* handle) {
  os::MutexLock lock(&mu_);
  kernels_.insert(handle);
}

void FunctionRegistry::DropModule(void* module) {
  os::MutexLock lock(&mu_);
  Table* table = table_.load(std::memory_order_relaxed);
  for (auto it = owners_.begin(); it != owners_.end();) {
    const bool drop = module == nullptr || it->second == module || it->second == nullptr;
    if (!drop) {
      ++it;
      continue;
    }
    size_t at = Hash(it->first) & table->mask;
    while (table->entries[at].handle.load(std::memory_order_relaxed) != it->first)
      at = (at + 1) & table->mask;
    table->entries[at].info.store(nullptr, std::memory_order_release);
    it = owners_.erase(it);
  }
  if (module == nullptr) kernels_.clear();
}

const FunctionInfo* FunctionRegistry::Learn(void* handle) {
  bool is_kernel;
  {
    os::MutexLock lock(&mu_);
    is_kernel = kernels_.contains(handle);
  }
  // Asked without the lock: a lazy load inside the driver may take long.
  FunctionInfo info = Ask(handle, is_kernel);
  if (!info.understood) {
    FunctionInfo other = Ask(handle, !is_kernel);
    if (other.understood) {
      info = std::move(other);
      is_kernel = !is_kernel;
    }
  }
  void* const owner = queries_->Owner(handle, is_kernel);
  info.library = queries_->LibraryOf(owner);
  info.denied = deny_list_ != nullptr && deny_list_->Match(info.name, info.library) != nullptr;
  info.plain = info.understood && !info.denied;
  os::MutexLock lock(&mu_);
  const FunctionInfo* const kept = InternLocked(std::move(info));
  InsertLocked(handle, kept);
  owners_[handle] = owner;
  return kept;
}

const FunctionInfo* FunctionRegistry::FindByTag(uint64_t tag) {
  os::MutexLock lock(&mu_);
  const auto found = infos_.find(tag);
  return found == infos_.end() ? nullptr : found->second.get();
}

FunctionInfo FunctionRegistry::Ask(void* handle, bool is_kernel) const {
  FunctionInfo info;
  info.tag = HashName("handle") ^ reinterpret_cast<uintptr_t>(handle);
  if (queries_->Name(handle, is_kernel, &info.name)) info.tag = HashName(info.name);
  for (size_t i = 0; i <= kMostParams; ++i) {
    size_t bytes = 0;
    switch (queries_->ParamSize(handle, is_kernel, i, &bytes)) {
      case FunctionQueries::Answer::kOk: info.layout.Append(bytes); break;
      case FunctionQueries::Answer::kPastEnd: info.understood = true; return info;
      case FunctionQueries::Answer::kFailed: return info;
    }
  }
  return info;
}

const FunctionInfo* FunctionRegistry::InternLocked(FunctionInfo info) {
  const auto [first, last] = infos_.equal_range(info.tag);
  for (auto it = first; it != last; ++it) {
    const FunctionInfo& known = *it->second;
    if (known.understood == info.understood && known.name == info.name && known.library == info.library &&
        known.layout == info.layout)
      return &known;
  }
  const uint64_t tag = info.tag;
  return infos_.emplace(tag, std::make_unique<const FunctionInfo>(std::move(info)))->second.get();
}

void FunctionRegistry::InsertLocked(void* handle, const FunctionInfo* info) {
  if (2 * (used_ + 1) > table_.load(std::memory_order_relaxed)->mask) GrowLocked();
  Table* table = table_.load(std::memory_order_relaxed);
  for (size_t at = Hash(handle) & table->mask;; at = (at + 1) & table->mask) {
    Entry& entry = table->entries[at];
    void* const key = entry.handle.load(std::memory_order_relaxed);
    if (key != nullptr && key != handle) continue;
    entry.info.store(
        info, std::memory_order_release);  // before the handle, so that a reader of the handle sees the info
    if (key == nullptr) {
      entry.handle.store(handle, std::memory_order_release);
      ++used_;
    }
    return;
  }
}

void FunctionRegistry::GrowLocked() {
  const Table* old = table_.load(std::memory_order_relaxed);
  auto table = std::make_unique<Table>(2 * (old->mask + 1));
  used_ = 0;
  for (const Entry& entry : old->entries) {
    void* const handle = entry.handle.load(std::memory_order_relaxed);
    const FunctionInfo* const info = entry.info.load(std::memory_order_relaxed);
    if (handle == nullptr || info == nullptr) continue;  // dropped ones are forgotten here
    size_t at = Hash(handle) & table->mask;
    while (table->entries[at].handle.load(std::memory_order_relaxed) != nullptr) at = (at + 1) & table->mask;
    table->entries[at].info.store(info, std::memory_order_relaxed);
    table->entries[at].handle.store(handle, std::memory_order_relaxed);
    ++used_;
  }
  table_.store(table.get(), std::memory_order_release);
  tables_.push_back(std::move(table));
}

}  // namespace spillway::integration
