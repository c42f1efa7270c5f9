// ImportedFunction leads the calls of one function to another, in every library of the process that imports
// it. It rewrites the importers' entries in the global offset table. This reaches libraries that are already
// loaded and were opened RTLD_LOCAL, where no symbol of ours could come first. It works on x86-64 ELF as
// glibc loads it. The check of CUDA errors uses it (refused_calls.h). Any thread may call it, but no signal
// handler. A call that cannot be redirected stays as it was.

#ifndef SPILLWAY_INTEGRATION_TORCH_IMPORTS_H_
#define SPILLWAY_INTEGRATION_TORCH_IMPORTS_H_

#include <link.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "io/os/sync.h"

namespace spillway::integration {

class ImportedFunction {
 public:
  // `original`: the function that importers are bound to, taken before any Redirect. Its symbol's name is
  // found by its address. `replacement` must stay callable as long as the process runs.
  ImportedFunction(void* original, void* replacement);

  // Returns the symbol's name; "" if no library exports one at the address. No call can be redirected then.
  const std::string& name() const { return name_; }

  // Redirects what is not redirected yet. Returns the number of entries that lead to the replacement now.
  // Costs little if no library has come or gone since the last call. Entries that other code has changed, and
  // those of a library that the loader is still working on, stay as they are. Thread-safe, but not for a
  // signal handler.
  size_t Redirect();

 private:
  // One place through which a library calls the function. It may lead into the library itself before the
  // first call.
  struct Entry {
    void** place;
    uintptr_t own_begin, own_end;  // of the library's code; both 0 if entries are bound at load
  };
  class Walk;

  // Returns whether the entry leads to the original, or is not bound yet.
  bool IsOursToChange(const Entry& entry) const;
  // Called inside a walk, so no library goes away. Returns the number of entries that lead to the
  // replacement.
  size_t ChangeLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void* const original_;
  void* const replacement_;
  std::string name_;  // constant after construction

  os::Mutex mu_{os::LockRank::kLog};  // held across a walk, which takes the loader's own lock for a moment
  bool walked_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t loaded_ ABSL_GUARDED_BY(mu_) = 0;  // libraries ever loaded and unloaded, at the last walk
  uint64_t unloaded_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mu_);  // valid while those two have not changed
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_TORCH_IMPORTS_H_
