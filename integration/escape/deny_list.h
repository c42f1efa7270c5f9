// DenyList: kernels that reach blocks by pointers which no scan of a launch finds. Pure: text in, matches
// out. A line that is wrong is refused. The engine reads the texts and fills one list before the first
// launch; the function registry asks it on launching threads. The gate decides what a match means
// (docs/audit.md).

#ifndef SPILLWAY_INTEGRATION_ESCAPE_DENY_LIST_H_
#define SPILLWAY_INTEGRATION_ESCAPE_DENY_LIST_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace spillway::integration {

class DenyList {
 public:
  struct Entry {
    std::string name;     // as the driver gives it (mangled); a trailing `*` stands for any rest
    std::string library;  // file name of the shared object that the kernel came in, `*` as above; empty: any
    std::string origin;   // "FILE:LINE"
  };

  // Adds the lines of `text`: NAME [LIBRARY], `#` begins a comment. kInvalidArgument names `file`, the line
  // and what is accepted; the lines before it have been added.
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
