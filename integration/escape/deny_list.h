// DenyList: kernels that reach blocks by pointers which no scan of a launch finds, and kernels that write
// such pointers. Each row says what is done at a launch. Pure: text in, matches out. A line that is wrong is
// refused. The engine reads the texts and fills one list before the first launch; the function registry asks
// it on launching threads. The access-set builder and the gate do what the row says (docs/audit.md).

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
    kEverything,  // the launch may touch any block: all are on the GPU for it
    kWriter,      // it writes addresses into a table: what it names stays until the table's memory is freed
    kRefuse,      // the launch is not made
  };
  struct Entry {
    std::string name;     // as the driver gives it (mangled); each `*` stands for any text
    std::string library;  // file name of the shared object that the kernel came in, `*` as above; empty: any
    std::string origin;   // "FILE:LINE"
    Action action = Action::kEverything;
    // Of a writer: the parameters that point to its tables, ascending. Empty: any of them may.
    std::vector<uint32_t> tables;
    // Of a writer: each launch writes its tables whole, so that nothing of an earlier launch is left in them.
    bool fills = false;
  };

  // Adds the lines of `text`: NAME [LIBRARY] [action=ACTION] [tables=LIST | fills=LIST], `#` begins a comment.
  // kInvalidArgument names `file`, the line and what is accepted; the lines before it have been added.
  absl::Status Add(std::string_view text, const std::string& file);
  // The list that comes with the product.
  static std::string_view Shipped();

  // The first entry for the kernel, or null. An entry with a library does not match where the library is not
  // known.
  const Entry* Match(std::string_view name, std::string_view library) const;
  // Whether an entry names a library, so that the origin of kernels must be looked up.
  bool NamesLibraries() const { return names_libraries_; }
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
  bool names_libraries_ = false;
};

// One line of a list for this kernel, newline included. `comment` must be one line.
std::string DenyListLine(std::string_view name, std::string_view library, std::string_view comment);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ESCAPE_DENY_LIST_H_
