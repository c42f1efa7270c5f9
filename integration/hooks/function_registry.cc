#include "integration/hooks/function_registry.h"

#include <dlfcn.h>

#include <utility>

namespace spillway::integration {
namespace {

constexpr size_t kFirstCapacity = 1024;
// A driver that never answers "past the end" must not hang the launch; no kernel has more than 32,764 bytes
// of parameters.
constexpr size_t kMaxParams = 32764;

// Returns the path of the shared object that contains `address`; empty for memory of no object.
std::string_view ObjectAt(const void* address) {
  Dl_info info = {};
  if (address == nullptr || dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "";
  return info.dli_fname;
}

}  // namespace

// ---- Kinds of handles.

bool HandleKinds::Record(const void* handle, HandleKind kind, const void* owner) {
  const auto library = libraries_.find(owner);
  if (library != libraries_.end()) owner = library->second;
  Origin& known = origins_[handle];
  if (known.kind == kind && known.owner == owner && owner != nullptr && known.context_ends == context_ends_)
    return false;
  if (known.kind != HandleKind::kUnknown) std::erase(by_owner_[known.owner], handle);
  known = {kind, owner, ++last_number_, context_ends_};
  by_owner_[owner].push_back(handle);
  return true;
}

void HandleKinds::Drop(const void* handle) {
  const auto known = origins_.find(handle);
  if (known == origins_.end()) return;
  std::erase(by_owner_[known->second.owner], handle);
  origins_.erase(known);
}

HandleKinds::Origin HandleKinds::Find(const void* handle) const {
  const auto found = origins_.find(handle);
  return found == origins_.end() ? Origin() : found->second;
}

std::vector<const void*> HandleKinds::Forget(const void* owner) {
  std::erase_if(libraries_,
                [owner](const auto& entry) { return entry.first == owner || entry.second == owner; });
  const auto found = by_owner_.find(owner);
  if (owner == nullptr || found == by_owner_.end()) return {};
  const std::vector<const void*> handles = std::move(found->second);
  by_owner_.erase(found);
  for (const void* handle : handles) origins_.erase(handle);
  return handles;
}

// ---- Where kernels come from.

std::string ModuleOrigins::FileNameOf(std::string_view path) {
  return std::string(path.substr(path.find_last_of('/') + 1));
}

std::string ModuleOrigins::LibraryAt(const void* image, const void* caller) {
  const std::string_view holder = ObjectAt(image);
  return FileNameOf(holder.empty() ? ObjectAt(caller) : holder);
}

void ModuleOrigins::Record(const void* handle, std::string file) {
  os::MutexLock lock(&mu_);
  files_[handle] = std::move(file);
}

std::string ModuleOrigins::Find(const void* handle) const {
  if (!enabled()) return "";
  os::MutexLock lock(&mu_);
  const auto found = files_.find(handle);
  return found == files_.end() ? "" : found->second;
}

// ---- Answers of the driver.

namespace {

FunctionQueries::Answer AnswerOf(CUresult result) {
  using Answer = FunctionQueries::Answer;
  if (result == CUDA_SUCCESS) return Answer::kOk;
  return result == CUDA_ERROR_OUT_OF_MEMORY ? Answer::kNoMemory : Answer::kFailed;
}

}  // namespace

// INVALID_VALUE for a handle of the right kind means that it has no such parameter; a kernel without any
// answers so at the first index.
FunctionQueries::Answer DriverFunctionQueries::ParamSize(void* handle, HandleKind kind, size_t index,
                                                         size_t* bytes) const {
  size_t offset = 0;
  CUresult result = CUDA_ERROR_NOT_SUPPORTED;
  if (kind == HandleKind::kKernel) {
    if (const auto ask = real_->Ask<Row::cuKernelGetParamInfo>()) {
      result = ask(static_cast<CUkernel>(handle), index, &offset, bytes);
    }
  } else if (const auto ask = real_->Ask<Row::cuFuncGetParamInfo>()) {
    result = ask(static_cast<CUfunction>(handle), index, &offset, bytes);
  }
  return result == CUDA_ERROR_INVALID_VALUE ? Answer::kNone : AnswerOf(result);
}

FunctionQueries::Answer DriverFunctionQueries::Name(void* handle, HandleKind kind, std::string* name) const {
  const char* text = nullptr;
  CUresult result = CUDA_ERROR_NOT_SUPPORTED;
  if (kind == HandleKind::kKernel) {
    if (const auto ask = real_->Ask<Row::cuKernelGetName>())
      result = ask(&text, static_cast<CUkernel>(handle));
  } else if (const auto ask = real_->Ask<Row::cuFuncGetName>()) {
    result = ask(&text, static_cast<CUfunction>(handle));
  }
  if (result != CUDA_SUCCESS) return AnswerOf(result);
  if (text == nullptr) return Answer::kNone;
  *name = text;
  return Answer::kOk;
}

const void* DriverFunctionQueries::Owner(void* handle, HandleKind kind) const {
  if (kind == HandleKind::kKernel) {
    CUlibrary library = nullptr;
    const auto ask = real_->Ask<Row::cuKernelGetLibrary>();
    return ask != nullptr && ask(&library, static_cast<CUkernel>(handle)) == CUDA_SUCCESS ? library : nullptr;
  }
  CUmodule module = nullptr;
  const auto ask = real_->Ask<Row::cuFuncGetModule>();
  return ask != nullptr && ask(&module, static_cast<CUfunction>(handle)) == CUDA_SUCCESS ? module : nullptr;
}

// ---- The registry.

FunctionRegistry::FunctionRegistry(const FunctionQueries* queries) : queries_(queries) {
  auto table = std::make_unique<Table>(kFirstCapacity);
  table_.store(table.get(), std::memory_order_release);
  os::MutexLock lock(&mu_);
  tables_.push_back(std::move(table));
}

FunctionRegistry::~FunctionRegistry() = default;

void FunctionRegistry::RecordFunction(CUfunction function, CUmodule module) {
  os::MutexLock lock(&mu_);
  RecordLocked(function, HandleKind::kFunction, module);
}

void FunctionRegistry::RecordKernel(CUkernel kernel, CUlibrary library) {
  os::MutexLock lock(&mu_);
  RecordLocked(kernel, HandleKind::kKernel, library);
}

void FunctionRegistry::RecordFunctionOf(CUfunction function, CUkernel kernel) {
  os::MutexLock lock(&mu_);
  RecordLocked(function, HandleKind::kFunction, kinds_.Find(kernel).owner);
}

void FunctionRegistry::RecordModuleOf(CUmodule module, CUlibrary library) {
  os::MutexLock lock(&mu_);
  kinds_.RecordModuleOf(module, library);
}

void FunctionRegistry::RecordNamed(void* handle, HandleKind kind) {
  {
    os::MutexLock lock(&mu_);
    if (kinds_.Find(handle).kind != HandleKind::kUnknown) return;
  }
  const void* const owner = queries_->Owner(handle, kind);
  os::MutexLock lock(&mu_);
  if (kinds_.Find(handle).kind == HandleKind::kUnknown) RecordLocked(handle, kind, owner);
}

// The kind is looked up before the question, which must not be asked about a handle of the other kind, and
// again after it, since other threads are given handles meanwhile.
void FunctionRegistry::RecordGiven(void* handle, HandleKind kind) {
  const void* owner = nullptr;
  for (const bool asked : {false, true}) {
    if (asked) owner = queries_->Owner(handle, kind);
    os::MutexLock lock(&mu_);
    const HandleKinds::Origin known = kinds_.Find(handle);
    const bool differ = known.kind != HandleKind::kUnknown && known.kind != kind;
    if (!differ && !asked) continue;
    if (known.owner != nullptr) owner = known.owner;
    kinds_.Drop(handle);
    DropLocked(handle);
    if (!differ) RecordLocked(handle, kind, owner);
    return;
  }
}

void FunctionRegistry::RecordContextEnd() {
  os::MutexLock lock(&mu_);
  kinds_.RecordContextEnd();
}

void FunctionRegistry::Forget(const void* owner) {
  os::MutexLock lock(&mu_);
  for (const void* handle : kinds_.Forget(owner)) DropLocked(handle);
}

// Anything that was learned of the handle before belongs to something else.
void FunctionRegistry::RecordLocked(const void* handle, HandleKind kind, const void* owner) {
  if (kinds_.Record(handle, kind, owner)) DropLocked(handle);
}

void FunctionRegistry::DropLocked(const void* handle) {
  Table* table = table_.load(std::memory_order_relaxed);
  for (size_t at = Hash(handle) & table->mask;; at = (at + 1) & table->mask) {
    const void* const key = table->entries[at].handle.load(std::memory_order_relaxed);
    if (key == handle) table->entries[at].info.store(nullptr, std::memory_order_release);
    if (key == handle || key == nullptr) return;
  }
}

const FunctionInfo* FunctionRegistry::Learn(void* handle) {
  for (;;) {
    HandleKinds::Origin origin;
    {
      os::MutexLock lock(&mu_);
      origin = kinds_.Find(handle);
    }
    // The driver is asked without the lock, since a lazy load inside it may take long.
    FunctionInfo info = Ask(handle, origin);
    os::MutexLock lock(&mu_);
    if (kinds_.Find(handle).number != origin.number) continue;  // given out again meanwhile
    const FunctionInfo* const kept = InternLocked(std::move(info));
    if (!kept->unanswered) InsertLocked(handle, kept);
    return kept;
  }
}

std::vector<const FunctionInfo*> FunctionRegistry::LearntSince(size_t seen) {
  os::MutexLock lock(&mu_);
  return {in_order_.begin() + static_cast<ptrdiff_t>(std::min(seen, in_order_.size())), in_order_.end()};
}

const FunctionInfo* FunctionRegistry::FindByTag(uint64_t tag) {
  os::MutexLock lock(&mu_);
  const auto found = infos_.find(tag);
  return found == infos_.end() ? nullptr : found->second.get();
}

FunctionInfo FunctionRegistry::Ask(void* handle, const HandleKinds::Origin& origin) const {
  FunctionInfo info;
  info.tag = HashName("handle") ^ reinterpret_cast<uintptr_t>(handle);
  info.of_unknown_origin = origin.kind == HandleKind::kUnknown;
  if (info.of_unknown_origin) return info;
  using Answer = FunctionQueries::Answer;
  const Answer named = queries_->Name(handle, origin.kind, &info.name);
  if (named == Answer::kOk) info.tag = HashName(info.name);
  info.library = queries_->LibraryOf(origin.owner);
  if (deny_list_ != nullptr) info.denied = deny_list_->Match(info.name, info.library);
  const Answer laid_out = AskLayout(handle, origin.kind, &info.layout);
  for (const Answer answer : {named, laid_out}) {
    info.unanswered |= answer == Answer::kFailed || answer == Answer::kNoMemory;
    info.no_memory |= answer == Answer::kNoMemory;
  }
  // A kernel without a name may be one of the list, or of NCCL's.
  info.understood = laid_out == Answer::kOk && named == Answer::kOk;
  if (IsNcclName(info.name)) info.nccl = NcclOf(info);
  info.plain = info.understood && info.denied == nullptr && info.nccl == NcclKernel::kNone;
  return info;
}

NcclKernel FunctionRegistry::NcclOf(const FunctionInfo& info) const {
  const std::vector<ParamLayout::Entry>& entries = info.layout.entries();
  const size_t bytes = entries.empty() ? 0 : entries.front().words * sizeof(uint64_t);
  return RecognizeNccl(info.name, info.layout.count(), bytes, nccl_versions_());
}

FunctionQueries::Answer FunctionRegistry::AskLayout(void* handle, HandleKind kind,
                                                    ParamLayout* layout) const {
  using Answer = FunctionQueries::Answer;
  for (size_t i = 0; i <= kMaxParams; ++i) {
    size_t bytes = 0;
    const Answer answer = queries_->ParamSize(handle, kind, i, &bytes);
    if (answer == Answer::kNone) return Answer::kOk;
    if (answer != Answer::kOk) {
      *layout = ParamLayout();
      return answer;
    }
    layout->Append(bytes);
  }
  return Answer::kNone;
}

const FunctionInfo* FunctionRegistry::InternLocked(FunctionInfo info) {
  const auto [first, last] = infos_.equal_range(info.tag);
  for (auto it = first; it != last; ++it) {
    const FunctionInfo& known = *it->second;
    if (known.understood == info.understood && known.of_unknown_origin == info.of_unknown_origin &&
        known.unanswered == info.unanswered && known.no_memory == info.no_memory && known.name == info.name &&
        known.library == info.library && known.layout == info.layout && known.nccl == info.nccl)
      return &known;
  }
  const uint64_t tag = info.tag;
  in_order_.push_back(
      infos_.emplace(tag, std::make_unique<const FunctionInfo>(std::move(info)))->second.get());
  return in_order_.back();
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
    if (handle == nullptr || info == nullptr) continue;  // dropped handles are forgotten here
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
