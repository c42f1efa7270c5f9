// The facts about kernels. FunctionRegistry has the parameter layout and the tag of each handle. It asks the
// driver once; every launch after that reads without a lock, on its own thread. A handle may be a CUfunction,
// or a CUkernel cast to one. The hooks on the calls that give handles out record which it is (HandleKinds),
// and the driver is asked for that kind only. The driver is not asked at all about a handle that no hook has
// seen: nothing is known of it. An unload drops the handles of what it ends. ModuleOrigins has the file that
// each kernel came from. A kernel without a layout counts as not understood. A question that the driver fails
// to answer is asked again at the next launch. No other call fails.

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

// The origin of each handle of a kernel that the driver gave out: its kind, and the module or library that it
// ends with. A record of a handle that has ended does no harm: a handle that comes back is given out anew,
// which replaces the record. It does so even if the owner is the same, as a library outlives the contexts
// that its functions end with. Not thread-safe; the owner locks.
class HandleKinds {
 public:
  struct Origin {
    HandleKind kind = HandleKind::kUnknown;
    const void* owner = nullptr;  // CUmodule or CUlibrary; null if not known
    uint64_t number = 0;          // differs for each time that the handle meant something else
    uint64_t context_ends = 0;    // the number of contexts that had ended when it was given out
  };

  // Records that the driver has given out `handle`, a kernel of `owner`. Returns false if that was known and
  // no context has ended since; a handle without an owner is never known.
  bool Record(const void* handle, HandleKind kind, const void* owner);
  // Forgets the handle.
  void Drop(const void* handle);
  // Records that `module` is that of `library`: its functions end with the library.
  void RecordModuleOf(const void* module, const void* library) { libraries_[module] = library; }
  // Records that a context ends, or has ended: a function that is given out from now on may have the handle
  // of another.
  void RecordContextEnd() { ++context_ends_; }
  // Returns what is known of the handle; an Origin without a kind if it was not seen.
  Origin Find(const void* handle) const;
  // Forgets the handles of `owner`, and returns them. `owner` is about to end, or has just begun (an earlier
  // one with that handle ended unseen).
  std::vector<const void*> Forget(const void* owner);

 private:
  std::unordered_map<const void*, Origin> origins_;
  std::unordered_map<const void*, std::vector<const void*>> by_owner_;
  std::unordered_map<const void*, const void*> libraries_;  // by module
  uint64_t last_number_ = 0;
  uint64_t context_ends_ = 0;
};

struct FunctionInfo {
  uint64_t tag = 0;         // of the name, so equal over runs; of the handle if the driver gives no name
  bool understood = false;  // false: there is no layout, or no name; a launch of it may reach any block
  bool of_unknown_origin = false;  // not understood because no hook has seen the handle given out
  // Not understood because the driver failed when it was asked. The next look-up asks it again.
  bool unanswered = false;
  bool no_memory = false;  // unanswered for want of memory: code is loaded when a kernel is first asked for
  const DenyList::Entry* denied = nullptr;  // its row in the deny list
  bool plain = false;                       // understood, not denied, and none of NCCL's
  NcclKernel nccl = NcclKernel::kNone;
  ParamLayout layout;
  std::string name;     // empty if the driver gave none
  std::string library;  // file name of its shared object; empty if origins are not recorded, or not known
};

// The questions that the registry asks of the driver, always for the handle's own kind. Tests answer them
// without a driver. Called on launching threads.
class FunctionQueries {
 public:
  // kNone: there is no such parameter, which ends their list, or there is no name. After kFailed the driver
  // may answer another time, and after kNoMemory with more free memory.
  enum class Answer { kOk, kNone, kFailed, kNoMemory };
  virtual ~FunctionQueries() = default;
  // Asks for the size in bytes of parameter `index`.
  virtual Answer ParamSize(void* handle, HandleKind kind, size_t index, size_t* bytes) const = 0;
  virtual Answer Name(void* handle, HandleKind kind, std::string* name) const = 0;
  // Returns the CUmodule or CUlibrary that the handle ends with; null if the driver does not report it.
  virtual const void* Owner(void* handle, HandleKind kind) const = 0;
  // Returns the name of the file that `owner` was loaded from, without folders; empty if not known.
  virtual std::string LibraryOf(const void* owner) const { return ""; }
};

// The shared object, or file, that each module and library of kernels was loaded from, recorded as it is
// loaded. Enabled only in audit mode, or if a deny list names libraries. Thread-safe.
class ModuleOrigins {
 public:
  // Records loads from now on. Must be called before the first load that matters.
  void Enable() { enabled_.store(true, std::memory_order_relaxed); }
  bool enabled() const { return enabled_.load(std::memory_order_relaxed); }

  // Records that a module or library was loaded from the image at `image` by code at `caller`. Its origin is
  // the shared object that contains the image; for an image made at run time it is the one that contains the
  // caller.
  void RecordImage(const void* handle, const void* image, const void* caller) {
    if (enabled()) Record(handle, LibraryAt(image, caller));
  }
  void RecordFile(const void* handle, const char* path) {
    if (enabled() && path != nullptr) Record(handle, FileNameOf(path));
  }
  // Returns the file name without folders; empty if not known.
  std::string Find(const void* handle) const;

 private:
  static std::string LibraryAt(const void* image, const void* caller);
  static std::string FileNameOf(std::string_view path);
  void Record(const void* handle, std::string file);

  std::atomic<bool> enabled_{false};
  mutable os::Mutex mu_{os::LockRank::kRegistry};
  std::unordered_map<const void*, std::string> files_ ABSL_GUARDED_BY(mu_);  // by module or library
};

// Asks the real driver, and the origins if they are recorded. Both must outlive this object; the table is
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

  // Returns the function's info, which is valid as long as the registry; never null. Thread-safe. Takes no
  // lock and allocates nothing once the handle is known. The first look-up asks the driver, and so does each
  // further one until it answers.
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

  // Sets the list of kernels that are marked as denied. Must be called before the first Find; `list` must
  // outlive this object.
  void SetDenyList(const DenyList* list) { deny_list_ = list; }
  // Replaces the search for the versions of NCCL in the process, for tests. Must be called before the first
  // Find.
  void SetNcclVersions(std::function<std::vector<int>()> versions) { nccl_versions_ = std::move(versions); }
  // Returns the functions that were learned after the first `seen`, in that order. Thread-safe; takes the
  // lock.
  std::vector<const FunctionInfo*> LearntSince(size_t seen);
  // Returns a function with that tag, or null. Thread-safe; takes the lock.
  const FunctionInfo* FindByTag(uint64_t tag);

  // ---- Handles as the driver gives them out. Thread-safe; each call takes the lock.

  void RecordFunction(CUfunction function, CUmodule module);
  void RecordKernel(CUkernel kernel, CUlibrary library);
  // Records the function of a kernel in one context. It ends with the kernel's library.
  void RecordFunctionOf(CUfunction function, CUkernel kernel);
  void RecordModuleOf(CUmodule module, CUlibrary library);
  // Records a handle that a member of the job's struct names, and which thereby has that kind (nodes of
  // graphs). If the handle is new to us, the driver is asked for its owner.
  void RecordNamed(void* handle, HandleKind kind);
  // Records a handle in a struct that the driver has filled. Its layout is asked for anew whatever is known
  // of it: the owner may be a module that no call has shown, whose end no call shows either, and whose
  // handles go to the next one. If the handle came from a call that gives out another kind, one of the two is
  // wrong: nothing is known of the handle from then on, and nothing is asked.
  void RecordGiven(void* handle, HandleKind kind);
  // Records that a context ends, or has ended.
  void RecordContextEnd();
  // Forgets the handles of a module or library that is about to be unloaded, or has just been loaded.
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
  void RecordLocked(const void* handle, HandleKind kind, const void* owner)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropLocked(const void* handle) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  const FunctionInfo* InternLocked(FunctionInfo info) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void InsertLocked(void* handle, const FunctionInfo* info) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void GrowLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const FunctionQueries* const queries_;
  const DenyList* deny_list_ = nullptr;                                    // constant from the first Find on
  std::function<std::vector<int>()> nccl_versions_ = &LoadedNcclVersions;  // constant like deny_list_
  std::atomic<Table*> table_;

  os::Mutex mu_{os::LockRank::kRegistry};
  // Every table that was ever published, since a reader may still walk an outgrown one. Together they are
  // less than twice the size of the newest.
  std::vector<std::unique_ptr<Table>> tables_ ABSL_GUARDED_BY(mu_);
  size_t used_ ABSL_GUARDED_BY(mu_) = 0;
  HandleKinds kinds_ ABSL_GUARDED_BY(mu_);
  // Infos live as long as the registry, and equal ones are shared, so loading the same module again adds
  // none.
  std::unordered_multimap<uint64_t, std::unique_ptr<const FunctionInfo>> infos_ ABSL_GUARDED_BY(mu_);
  std::vector<const FunctionInfo*> in_order_ ABSL_GUARDED_BY(mu_);  // as they were learned
};

// Records the kernel of a graph's node from the parameters that the driver gives out, in which each kind has
// a member of its own.
template <typename Params>
void RecordKernelOfNode(FunctionRegistry* functions, const Params& params) {
  if constexpr (requires { params.kern; }) {
    if (params.func == nullptr && params.kern != nullptr)
      functions->RecordGiven(params.kern, HandleKind::kKernel);
  }
  if (params.func != nullptr) functions->RecordGiven(params.func, HandleKind::kFunction);
}

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_FUNCTION_REGISTRY_H_
