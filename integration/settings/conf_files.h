// ConfFiles: the contents of /etc/spillway.conf and of the user's file (conf_file.h). The user's counts
// before the system's; limits come from the system's alone. The command line and spillway.enable() use this;
// in a job the preload reads the same files, by the same functions. Read once, constant after that;
// thread-safe.

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
    std::string user;    // empty: none is read
    ConfFileKind user_kind = kConfOfUser;
  };
  // Returns the paths of this process, by its environment.
  static Paths PathsOfProcess();

  explicit ConfFiles(const Paths& paths);
  ~ConfFiles();
  ConfFiles(const ConfFiles&) = delete;
  ConfFiles& operator=(const ConfFiles&) = delete;

  // Returns kInvalidArgument, with the message of a job's start, if something is wrong with a file. The files
  // have no values then.
  absl::Status status() const;

  // Return the value and the origin of the setting `name`; null if the files do not have it. They live as
  // long as this object.
  const char* Value(const char* name) const;
  const char* Source(const char* name) const;  // "/etc/spillway.conf:3: host_memory"

  // Gives the limits to `source`. This object must outlive it.
  void AddLimitsTo(SettingSource* source) const;

 private:
  const ConfFileEntry* Find(const char* name) const;

  ConfFile user_ = {};
  ConfFile system_ = {};
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_SETTINGS_CONF_FILES_H_
