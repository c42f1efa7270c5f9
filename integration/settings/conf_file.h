/* Files of settings: /etc/spillway.conf, and one of the user's. Reads one into entries, or says what is wrong
 * with it; judges no value, which is for settings.h. For the preload, which must know some settings before
 * there is an engine, and for the command line. Nothing of a file is executed. C, with no dependency but
 * libc.
 *
 * A line is NAME=VALUE, with a name of settings.def (`host_memory`) or the variable's
 * (`SPILLWAY_HOST_MEMORY`); a `#` at its start, or after a space, begins a comment. What follows `[limits]`,
 * in the system's file alone, limits what users may set. */

#ifndef SPILLWAY_INTEGRATION_SETTINGS_CONF_FILE_H_
#define SPILLWAY_INTEGRATION_SETTINGS_CONF_FILE_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SPILLWAY_SYSTEM_CONF "/etc/spillway.conf"

enum ConfFileKind {
  kConfOfSystem, /* belongs to root, or to who owns its folder; may have limits */
  kConfOfUser,   /* belongs to this process's user, or to root */
  kConfNamed,    /* likewise; the user has named it, so it must be there */
};

enum { kMostConfFileEntries = 96, kMostConfFileBytes = 64 << 10 };

struct ConfFileEntry {
  const char* name;   /* of settings.def, "host_memory" */
  const char* value;  /* without spaces around it; never empty */
  const char* source; /* "/etc/spillway.conf:3: host_memory", for messages */
  int is_limit;
};

struct ConfFile {
  char problem
      [768]; /* what is wrong, with file, line and what to do; empty: nothing. Then there are no entries */
  size_t count;
  struct ConfFileEntry entries[kMostConfFileEntries];
  char* text; /* what the entries point into */
};

/* Fills `file`, whatever it held. 1: it was read. 0: it is not there, which costs one call of the system.
 * -1: something is wrong. Any thread. */
int ReadConfFile(const char* path, enum ConfFileKind kind, struct ConfFile* file);

/* Gives back what ReadConfFile took. */
void CloseConfFile(struct ConfFile* file);

/* The entry of that name, a limit or a setting. NULL: there is none. */
const struct ConfFileEntry* FindConfFileEntry(const struct ConfFile* file, const char* name, int is_limit);

/* Where the user's file is, by the values of SPILLWAY_CONF (a path, or none), XDG_CONFIG_HOME and HOME; NULL
 * is not set. 0 where there can be none; else `path` has it, and `kind` says how it is to be read. */
int UserConfPath(const char* named, const char* config_home, const char* home, char* path, size_t bytes,
                 enum ConfFileKind* kind);

#ifdef __cplusplus
}
#endif

#endif /* SPILLWAY_INTEGRATION_SETTINGS_CONF_FILE_H_ */
