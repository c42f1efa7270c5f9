// ConfFiles: what /etc/spillway.conf and the user's file say (conf_file.h). The user's counts before the
// system's; limits come from the system's alone. For the command line and for spillway.enable(): in a job the
// preload reads the same files, by the same functions. Read once, constant after that; any thread.

#ifndef SPILLWAY_INTEGRATION_SETTINGS_CONF_FILES_H_
#define SPILLWAY_INTEGRATION_SETTINGS_CONF_FILES_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "integration/settings/conf_file.h"
#include "integration/settings/settings.h"

namespace spillway::integration {

class ConfFiles {
 public:
  struct Paths {
    std::string system;  // empty: none is read
    std::string user;    // likewise
    ConfFileKind user_kind = kConfOfUser;
  };
  // Of this process, by its environment.
  static Paths PathsOfProcess();

  explicit ConfFiles(const Paths& paths);
  ~ConfFiles();
  ConfFiles(const ConfFiles&) = delete;
  ConfFiles& operator=(const ConfFiles&) = delete;

  // kInvalidArgument, with the words of a job's start, where something is wrong with a file; then it says
  // nothing.
  absl::Status status() const;

  // Of the setting `name`; null where the files do not say. They live as long as this object.
  const char* Value(const char* name) const;
  const char* Source(const char* name) const;  // "/etc/spillway.conf:3: host_memory"

  // Lets `source` have the limits. This object must live as long as it.
  void AddLimitsTo(SettingSource* source) const;

 private:
  const ConfFileEntry* Find(const char* name) const;

  ConfFile user_ = {};
  ConfFile system_ = {};
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_SETTINGS_CONF_FILES_H_
