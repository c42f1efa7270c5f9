#include "integration/engine/audit_setup.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "io/os/errno.h"
#include "io/os/log.h"

namespace spillway::integration {
namespace {

class File {
 public:
  File(const std::string& path, int flags) : descriptor_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int descriptor() const { return descriptor_; }
  bool open() const { return descriptor_ >= 0; }

 private:
  const int descriptor_;
};

absl::Status Failure(const std::string& path) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", std::strerror(errno)));
}

absl::StatusOr<std::string> ReadAll(const File& file, const std::string& path) {
  std::string text;
  char part[4096];
  for (;;) {
    const ssize_t got = ::pread(file.descriptor(), part, sizeof(part), static_cast<off_t>(text.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Failure(path);
    if (got == 0) return text;
    text.append(part, static_cast<size_t>(got));
  }
}

// Returns the user's list; empty if it does not exist yet.
absl::StatusOr<std::string> ReadUsersList(const Settings& settings) {
  if (settings.denylist.empty()) return std::string();
  // An audit will write it, so that is tried now and not after an hour.
  const File file(settings.denylist, settings.audit ? O_RDWR | O_CREAT : O_RDONLY);
  if (!file.open()) return Failure(settings.denylist);
  return ReadAll(file, settings.denylist);
}

}  // namespace

absl::StatusOr<DenyList> ReadDenyLists(const Settings& settings) {
  DenyList list;
  // The first row that matches counts, so the user's rows come before ours.
  SPILLWAY_ASSIGN_OR_RETURN(const std::string text, ReadUsersList(settings));
  SPILLWAY_RETURN_IF_ERROR(list.Add(text, settings.denylist));
  SPILLWAY_RETURN_IF_ERROR(list.Add(DenyList::Shipped(), "the shipped deny list"));
  return list;
}

absl::StatusOr<bool> AppendToDenyList(const std::string& path, const Auditor::Kernel& kernel) {
  const File file(path, O_RDWR | O_CREAT | O_APPEND);
  if (!file.open() || ::flock(file.descriptor(), LOCK_EX) != 0) return Failure(path);
  SPILLWAY_ASSIGN_OR_RETURN(const std::string text, ReadAll(file, path));
  DenyList known;  // another rank may have found the same kernel meanwhile
  if (known.Add(text, path).ok() && known.Match(kernel.name, kernel.library) != nullptr) return false;
  const std::string line =
      absl::StrCat(text.empty() || text.back() == '\n' ? "" : "\n",
                   DenyListLine(kernel.name, kernel.library,
                                absl::StrCat("audit, launch ", kernel.launch, ": ", kernel.readable)));
  ssize_t written;
  do {
    written = ::write(file.descriptor(), line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  if (written < 0) return Failure(path);
  if (static_cast<size_t>(written) != line.size()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": only a part of the line could be written"));
  }
  return true;
}

AuditSetup::AuditSetup(const Settings& settings, DenyList list, HookState* state)
    : list_(std::move(list)), file_(settings.denylist) {
  if (!list_.entries().empty()) state->functions.SetDenyList(&list_);
  if (settings.audit || list_.NamesLibraries()) state->origins.Enable();
  if (!settings.audit) return;
  auditor_ = std::make_unique<Auditor>(&state->functions,
                                       [this](const Auditor::Kernel& kernel) { return Record(kernel); });
  os::ReportLine(
      absl::StrCat("audit: launches run one at a time, with nothing mapped that they do not name; ",
                   list_.entries().size(), " entries in the deny lists"));
}

std::string AuditSetup::Summary() const { return auditor_ == nullptr ? "" : auditor_->Summary(); }

std::string AuditSetup::Record(const Auditor::Kernel& kernel) const {
  constexpr char kIfRight[] = "If the job runs well without Spillway, ";
  if (kernel.name.empty()) return "The driver gives it no name, so no deny list can hold it.";
  const DenyList::Entry* const row = list_.Match(kernel.name, kernel.library);
  if (row != nullptr && row->action == DenyList::Action::kEverything) {
    return "It is in the deny list already, so everything was mapped for it: the job itself is wrong.";
  }
  if (row != nullptr && !file_.empty() && row->origin.rfind(file_ + ":", 0) == 0) {
    return absl::StrCat("Its row at ", row->origin, " does not do: it needs action=everything.");
  }
  if (file_.empty()) {
    return absl::StrCat(kIfRight, "put this line into a file and set SPILLWAY_DENYLIST to it: ", kernel.name,
                        kernel.library.empty() ? "" : " ", kernel.library);
  }
  const absl::StatusOr<bool> added = AppendToDenyList(file_, kernel);
  if (!added.ok()) {
    return absl::StrCat("It could not be added to the deny list (", std::string(added.status().message()),
                        "): ", kernel.name);
  }
  return absl::StrCat(*added ? "It has been added to " : "It is in ", file_, ". ", kIfRight,
                      "run it again with the same settings to look for the next kernel");
}

}  // namespace spillway::integration
