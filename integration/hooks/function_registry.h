// What is known of kernels. FunctionRegistry has the parameter layout and the tag of each handle. It asks the
// driver once; afterwards every launch reads without a lock, on its own thread. A handle may be a CUfunction,
// or a CUkernel cast to one: the hooks on the calls that give handles out note which (HandleKinds), and the
// driver is asked for that kind only. A handle that no hook has seen is not asked for at all: nothing is known
// of it. An unload drops the handles of what it ends. ModuleOrigins has the file that each kernel came from. A
// kernel without a layout counts as not understood; what the driver fails to answer is asked again at the next
// launch; nothing else fails.

#ifndef SPILLWAY_INTEGRATION_HOOKS_FUNCTION_REGISTRY_H_
#define SPILLWAY_INTEGRATION_HOOKS_FUNCTION_REGISTRY_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "integration/escape/deny_list.h"
#include "integration/escape/nccl_kernels.h"
#include "integration/hooks/hook_rows.h"
#include "integration/hooks/kernel_params.h"
#include "io/os/sync.h"

namespace spillway::integration {

enum class HandleKind : uint8_t { kUnknown, kFunction, kKernel };

// Of each handle of a kernel that the driver gave out: its kind, and which module or library it ends with.
// What is noted of a handle that has ended does no harm: one that comes back is given out anew, which replaces
// it, also where the owner is the same: a library outlives the contexts that its functions end with. Its owner
// locks.
class HandleKinds {
 public:
  struct Origin {
    HandleKind kind = HandleKind::kUnknown;
    const void* owner = nullptr;  // CUmodule or CUlibrary; null: not known
    uint64_t number = 0;          // another one for each time that the handle meant something else
    uint64_t context_ends = 0;    // of all contexts, when it was given out
  };

  // The driver has given out `handle`, a kernel of `owner`. False when that was known and no context has ended
  // since; of a handle without an owner it never is.
  bool Note(const void* handle, HandleKind kind, const void* owner);
  // Nothing is known of the handle any more.
  void Drop(const void* handle);
  // `module` is that of `library`: what comes from it ends with the library.
  void NoteModuleOf(const void* module, const void* library) { libraries_[module] = library; }
  // A context ends, or has ended: a function that is given out from now on may have the handle of another.
  void NoteContextEnd() { ++context_ends_; }
  // What is known of the handle; an Origin without a kind when it was not seen.
  Origin Find(const void* handle) const;
  // `owner` is about to end, or has just begun (an earlier one of that handle ended unseen). Its handles.
  std::vector<const void*> Forget(const void* owner);

 private:
  std::unordered_map<const void*, Origin> origins_;
  std::unordered_map<const void*, std::vector<const void*>> by_owner_;
  std::unordered_map<const void*, const void*> libraries_;  // by module
  uint64_t last_number_ = 0;
  uint64_t context_ends_ = 0;
};

struct FunctionInfo {
  uint64_t tag = 0;         // of the name, so equal over runs; of the handle when the driver gives no name
  bool understood = false;  // false: there is no layout, or no name; a launch of it may reach any block
  bool of_unknown_origin = false;  // not understood because no hook has seen where the handle came from
  // Not understood because the driver failed when it was asked; the next look-up asks it again.
  bool unanswered = false;
  bool no_memory = false;  // unanswered, for want of memory: code is loaded when a kernel is first asked for
  const DenyList::Entry* denied = nullptr;  // its row in the deny list
  bool plain = false;                       // understood, not denied, and none of NCCL's
  NcclKernel nccl = NcclKernel::kNone;
  ParamLayout layout;
  std::string name;     // empty when the driver gave none
  std::string library;  // file name of its shared object; empty when origins are not noted, or not known
};

// What the registry asks of the driver, always for the handle's own kind; tests answer without one. Called on
// launching threads.
class FunctionQueries {
 public:
  // kNone: there is no such parameter, which ends their list; there is no name. The driver may answer another time
  // after kFailed, and with more free memory after kNoMemory.
  enum class Answer { kOk, kNone, kFailed, kNoMemory };
  virtual ~FunctionQueries() = default;
  // Size in bytes of parameter `index`.
  virtual Answer ParamSize(void* handle, HandleKind kind, size_t index, size_t* bytes) const = 0;
  virtual Answer Name(void* handle, HandleKind kind, std::string* name) const = 0;
  // CUmodule or CUlibrary that the handle dies with; null when the driver does not say.
  virtual const void* Owner(void* handle, HandleKind kind) const = 0;
  // The file that `owner` was loaded from, without folders; empty when not known.
  virtual std::string LibraryOf(const void* owner) const { return ""; }
};

// The shared object, or file, that each module and library of kernels was loaded from, noted as it is loaded.
// Enabled only in audit mode, or when a deny list names libraries. Any thread.
class ModuleOrigins {
 public:
  // Notes loads from now on. To be called before the first load that matters.
  void Enable() { enabled_.store(true, std::memory_order_relaxed); }
  bool enabled() const { return enabled_.load(std::memory_order_relaxed); }

  // A module or library was loaded from the image at `image` by code at `caller`. Its origin is the shared
  // object that contains the image or, for an image made at run time, the one that contains the caller.
  void NoteImage(const void* handle, const void* image, const void* caller) {
    if (enabled()) Note(handle, LibraryAt(image, caller));
  }
  void NoteFile(const void* handle, const char* path) {
    if (enabled() && path != nullptr) Note(handle, FileNameOf(path));
  }
  // File name without folders; empty when not known.
  std::string Find(const void* handle) const;

 private:
  static std::string LibraryAt(const void* image, const void* caller);
  static std::string FileNameOf(std::string_view path);
  void Note(const void* handle, std::string file);

  std::atomic<bool> enabled_{false};
  mutable os::Mutex mu_{os::LockRank::kRegistry};
  std::unordered_map<const void*, std::string> files_ ABSL_GUARDED_BY(mu_);  // by module or library
};

// Asks the real driver, and the origins where they are noted. Both must outlive this object; the table is
// filled before the first question.
class DriverFunctionQueries : public FunctionQueries {
 public:
  DriverFunctionQueries(const RealTable* real, const ModuleOrigins* origins)
      : real_(real), origins_(origins) {}

  Answer ParamSize(void* handle, HandleKind kind, size_t index, size_t* bytes) const override;
  Answer Name(void* handle, HandleKind kind, std::string* name) const override;
  const void* Owner(void* handle, HandleKind kind) const override;
  std::string LibraryOf(const void* owner) const override { return origins_->Find(owner); }

 private:
  const RealTable* const real_;
  const ModuleOrigins* const origins_;
};

class FunctionRegistry {
 public:
  explicit FunctionRegistry(const FunctionQueries* queries);
  ~FunctionRegistry();
  FunctionRegistry(const FunctionRegistry&) = delete;
  FunctionRegistry& operator=(const FunctionRegistry&) = delete;

  // The function's info; never null, valid as long as the registry. Any thread. No lock and no allocation
  // once the handle is known; the first look-up asks the driver, and so does each further one until it answers.
  const FunctionInfo* Find(void* handle) {
    const Table* table = table_.load(std::memory_order_acquire);  // pairs with the release in GrowLocked
    for (size_t at = Hash(handle) & table->mask;; at = (at + 1) & table->mask) {
      const void* key = table->entries[at].handle.load(std::memory_order_acquire);  // pairs with InsertLocked
      if (key == handle) {
        const FunctionInfo* info =
            table->entries[at].info.load(std::memory_order_acquire);  // pairs with InsertLocked
        if (info != nullptr) return info;
        break;  // dropped by an unload
      }
      if (key == nullptr) break;
    }
    return Learn(handle);
  }

  // The kernels that are marked as denied. To be called before the first Find; `list` must outlive this
  // object.
  void SetDenyList(const DenyList* list) { deny_list_ = list; }
  // How the versions of NCCL in the process are found, for tests. To be called before the first Find.
  void SetNcclVersions(std::function<std::vector<int>()> versions) { nccl_versions_ = std::move(versions); }
  // The functions that were learnt after the first `seen`, in that order. Any thread; takes the lock.
  std::vector<const FunctionInfo*> LearntSince(size_t seen);
  // A function with that tag, or null. Any thread; takes the lock.
  const FunctionInfo* FindByTag(uint64_t tag);

  // ---- Handles as the driver gives them out. Any thread; each takes the lock.

  void NoteFunction(CUfunction function, CUmodule module);
  void NoteKernel(CUkernel kernel, CUlibrary library);
  // The function of a kernel, in one context. It ends with the kernel's library.
  void NoteFunctionOf(CUfunction function, CUkernel kernel);
  void NoteModuleOf(CUmodule module, CUlibrary library);
  // Where a member of the job's struct tells the kind (nodes of graphs) and the handle is new to us: its owner
  // is asked.
  void NoteNamed(void* handle, HandleKind kind);
  // The same of a struct that the driver has filled. Whatever is known of the handle, its layout is asked anew:
  // the owner may be a module that no call has shown, whose end none shows either, and whose handles the next
  // one has. Where it came from a call that gives out another kind, one of both is wrong: nothing is known of
  // the handle from then on, and nothing asked.
  void NoteGiven(void* handle, HandleKind kind);
  // A context ends, or has ended.
  void NoteContextEnd();
  // A module or library is about to be unloaded, or has just been loaded.
  void Forget(const void* owner);

 private:
  struct Entry {
    std::atomic<void*> handle{nullptr};
    std::atomic<const FunctionInfo*> info{nullptr};  // null: dropped
  };
  struct Table {
    explicit Table(size_t capacity) : mask(capacity - 1), entries(capacity) {}
    const size_t mask;
    std::vector<Entry> entries;
  };

  static size_t Hash(const void* handle) {
    return static_cast<size_t>((reinterpret_cast<uintptr_t>(handle) >> 4) * 0x9e3779b97f4a7c15u >> 20);
  }
  const FunctionInfo* Learn(void* handle);
  FunctionInfo Ask(void* handle, const HandleKinds::Origin& origin) const;
  NcclKernel NcclOf(const FunctionInfo& info) const;
  FunctionQueries::Answer AskLayout(void* handle, HandleKind kind, ParamLayout* layout) const;
  void NoteLocked(const void* handle, HandleKind kind, const void* owner) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropLocked(const void* handle) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  const FunctionInfo* InternLocked(FunctionInfo info) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void InsertLocked(void* handle, const FunctionInfo* info) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void GrowLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const FunctionQueries* const queries_;
  const DenyList* deny_list_ = nullptr;                                    // constant from the first Find on
  std::function<std::vector<int>()> nccl_versions_ = &LoadedNcclVersions;  // as deny_list_
  std::atomic<Table*> table_;

  os::Mutex mu_{os::LockRank::kRegistry};
  // Every table ever published: a reader may still walk an outgrown one. Together less than twice the newest.
  std::vector<std::unique_ptr<Table>> tables_ ABSL_GUARDED_BY(mu_);
  size_t used_ ABSL_GUARDED_BY(mu_) = 0;
  HandleKinds kinds_ ABSL_GUARDED_BY(mu_);
  // Infos live as long as the registry, and equal ones are shared: loading the same module again adds none.
  std::unordered_multimap<uint64_t, std::unique_ptr<const FunctionInfo>> infos_ ABSL_GUARDED_BY(mu_);
  std::vector<const FunctionInfo*> in_order_ ABSL_GUARDED_BY(mu_);  // as they were learnt
};

// The kernel of a graph's node whose parameters the driver gives out, in the member of its kind.
template <typename Params>
void NoteKernelOfNode(FunctionRegistry* functions, const Params& params) {
  if constexpr (requires { params.kern; }) {
    if (params.func == nullptr && params.kern != nullptr)
      functions->NoteGiven(params.kern, HandleKind::kKernel);
  }
  if (params.func != nullptr) functions->NoteGiven(params.func, HandleKind::kFunction);
}

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_FUNCTION_REGISTRY_H_
