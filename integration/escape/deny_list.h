// DenyList: kernels that reach blocks through pointers which no scan of a launch finds, and kernels that
// write such pointers. Each row says what is done at a launch. The list is pure: text in, matches out. A
// malformed line is an error. The engine reads the texts and fills one list before the first launch; the
// function registry asks it on launching threads. The access-set builder and the gate do what the row says
// (docs/audit.md).

#ifndef SPILLWAY_INTEGRATION_ESCAPE_DENY_LIST_H_
#define SPILLWAY_INTEGRATION_ESCAPE_DENY_LIST_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace spillway::integration {

class DenyList {
 public:
  enum class Action {
    kEverything,  // the launch may touch any block, so all of them are on the GPU for it
    kWriter,      // it writes addresses into a table: what it names stays until the table is freed
    kRefuse,      // the launch is not made
  };
  struct Entry {
    std::string name;     // as the driver gives it (mangled); each `*` matches any text
    std::string library;  // file name of the kernel's shared object, `*` as above; empty: any
    std::string origin;   // "FILE:LINE"
    Action action = Action::kEverything;
    // The numbers of a writer's parameters that point to its tables, ascending. Empty: any parameter may
    // point to one.
    std::vector<uint32_t> tables;
    // Whether each launch of a writer writes its tables whole, so that nothing of an earlier launch is left
    // in them.
    bool fills = false;
  };

  // Adds the lines of `text`: NAME [LIBRARY] [action=ACTION] [tables=LIST | fills=LIST]; `#` begins a
  // comment. A malformed line is kInvalidArgument; the message names `file`, the line and what is accepted.
  // The lines before it have been added.
  absl::Status Add(std::string_view text, const std::string& file);
  // Returns the list that comes with the product.
  static std::string_view Shipped();

  // Returns the first entry that matches the kernel, or null. An entry that names a library never matches an
  // empty `library`, which means that the kernel's origin is not known.
  const Entry* Match(std::string_view name, std::string_view library) const;
  // Returns whether any entry names a library; the origins of kernels must be recorded then.
  bool NamesLibraries() const { return names_libraries_; }
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
  bool names_libraries_ = false;
};

// Returns one line of a list for this kernel, newline included. `comment` must be a single line.
std::string DenyListLine(std::string_view name, std::string_view library, std::string_view comment);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ESCAPE_DENY_LIST_H_
