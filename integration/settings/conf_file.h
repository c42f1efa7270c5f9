/* Files of settings: /etc/spillway.conf, and one of the user's. Reads a file into entries, or reports what is
 * wrong with it. No value is judged here; settings.h does that. The preload uses this, since it must know
 * some settings before there is an engine, and so does the command line. A file is never executed. C, with no
 * dependency but libc.
 *
 * A line is NAME=VALUE, with a name of settings.def (`host_memory`) or the variable's
 * (`SPILLWAY_HOST_MEMORY`); a `#` at its start, or after a space, begins a comment. Lines behind `[limits]`,
 * in the system's file alone, limit what users may set. */

#ifndef SPILLWAY_INTEGRATION_SETTINGS_CONF_FILE_H_
#define SPILLWAY_INTEGRATION_SETTINGS_CONF_FILE_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SPILLWAY_SYSTEM_CONF "/etc/spillway.conf"

enum ConfFileKind {
  kConfOfSystem, /* belongs to root, or to the owner of its folder; may have limits */
  kConfOfUser,   /* belongs to this process's user, or to root */
  kConfNamed,    /* like the user's; the user has named it, so it must be there */
};

enum { kMaxConfFileEntries = 96, kMaxConfFileBytes = 64 << 10 };

struct ConfFileEntry {
  const char* name;   /* of settings.def, "host_memory" */
  const char* value;  /* without spaces around it; never empty */
  const char* source; /* "/etc/spillway.conf:3: host_memory", for messages */
  int is_limit;
};

struct ConfFile {
  char problem
      [768]; /* what is wrong, with file, line and what to do; no entries then. Empty: nothing is wrong */
  size_t count;
  struct ConfFileEntry entries[kMaxConfFileEntries];
  char* text; /* the bytes that the entries point into */
};

/* Fills `file`, whatever it had before. Returns 1 if the file was read, 0 if it is not there, which costs one
 * system call, and -1 if something is wrong. Thread-safe. */
int ReadConfFile(const char* path, enum ConfFileKind kind, struct ConfFile* file);

/* Releases what ReadConfFile took. */
void CloseConfFile(struct ConfFile* file);

/* Returns the entry of that name, a limit or a setting; NULL if there is none. */
const struct ConfFileEntry* FindConfFileEntry(const struct ConfFile* file, const char* name, int is_limit);

/* Finds the user's file, by the values of SPILLWAY_CONF (a path, or none), XDG_CONFIG_HOME and HOME; NULL for
 * a variable that is not set. Returns 0 if there can be no file. Otherwise `path` has it, and `kind` tells
 * how it is to be read. */
int UserConfPath(const char* named, const char* config_home, const char* home, char* path, size_t bytes,
                 enum ConfFileKind* kind);

#ifdef __cplusplus
}
#endif

#endif /* SPILLWAY_INTEGRATION_SETTINGS_CONF_FILE_H_ */
