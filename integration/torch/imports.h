// ImportedFunction: leads the calls of one function to another, in every library of the process that imports
// it. It rewrites the importers' entries in the global offset table. That reaches libraries that are already
// loaded and were opened RTLD_LOCAL, where no symbol of ours could come first. For x86-64 ELF as glibc loads
// it. The check of CUDA errors uses it (refused_calls.h). Any thread, but no signal handler. Where something
// cannot be redirected, it stays as it was.

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
  // `original`: what importers are bound to, taken before any Redirect. Its symbol's name is found by its
  // address. `replacement` must stay callable as long as the process runs.
  ImportedFunction(void* original, void* replacement);

  // The symbol's name; "" when no library exports one at the address: then nothing can be redirected.
  const std::string& name() const { return name_; }

  // Redirects what is not redirected yet. Returns how many entries lead to the replacement now. Costs little
  // when no library has come or gone since the last call. Entries that other code has changed, and those of a
  // library that the loader is still working on, stay as they are. Any thread; not from a signal handler.
  size_t Redirect();

 private:
  // One place through which a library calls the function. Before the first call it may lead into the library
  // itself.
  struct Entry {
    void** place;
    uintptr_t own_begin, own_end;  // of the library's code; both 0 where entries are bound at load
  };
  class Walk;

  // Whether the entry leads to the original, or is not bound yet.
  bool IsOursToChange(const Entry& entry) const;
  // Inside a walk: no library goes away. Returns how many entries lead to the replacement.
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
