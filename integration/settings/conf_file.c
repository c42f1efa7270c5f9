#include "integration/settings/conf_file.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "integration/settings/name_distance.h"

static const char* const kNames[] = {
#define SETTING(name, ...) #name,
#define MODE_SETTING(...) SETTING(__VA_ARGS__)
#include "integration/settings/settings.def"
};
enum { kNameCount = sizeof(kNames) / sizeof(kNames[0]) };
/* ReadSettings (settings.cc) reads a limit of each of these, and must know every one. */
static const char* const kLimited[] = {"gpu_memory", "host_memory", "write_budget"};
enum { kLimitedCount = sizeof(kLimited) / sizeof(kLimited[0]) };
_Static_assert(kNameCount + kLimitedCount <= kMaxConfFileEntries, "kMaxConfFileEntries is too small");

static const char kPrefix[] = "SPILLWAY_";

/* Records a problem and returns -1. Only the first problem is kept, since later ones follow from it. */
__attribute__((format(printf, 2, 3))) static int Wrong(struct ConfFile* file, const char* format, ...) {
  va_list parts;
  va_start(parts, format);
  if (!*file->problem) vsnprintf(file->problem, sizeof(file->problem), format, parts);
  va_end(parts);
  return -1;
}

/* --- The file itself --- */

/* Checks the file's owner: whoever may write the file decides what is loaded into this process (cuda_driver).
 */
static int CheckOwner(const char* path, enum ConfFileKind kind, const struct stat* info,
                      struct ConfFile* file) {
  uid_t other = geteuid();
  if (kind == kConfOfSystem) {
    /* Root's files belong to an unknown user in a user namespace; the owner of /etc may replace them anyway.
     */
    struct stat folder;
    char parent[4096];
    snprintf(parent, sizeof(parent), "%s", path);
    char* slash = strrchr(parent, '/');
    if (slash) *slash = '\0';
    other = slash && stat(parent, &folder) == 0 ? folder.st_uid : 0;
  }
  if (!S_ISREG(info->st_mode))
    return Wrong(file, "%s: it is not a regular file; remove it, or name another", path);
  if (info->st_uid != 0 && info->st_uid != other)
    return Wrong(file, "%s: it belongs to user %u, who is neither root nor %s; change its owner (chown)",
                 path, (unsigned)info->st_uid,
                 kind == kConfOfSystem ? "the owner of its folder" : "this one");
  if (info->st_mode & (S_IWGRP | S_IWOTH))
    return Wrong(file, "%s: users other than its owner may write to it; run chmod go-w %s", path,
                 path);
  return 0;
}

/* Reads the whole file. Returns -1 for an error, otherwise the number of bytes, which is more than
   kMaxConfFileBytes if the file is too large. */
static ssize_t ReadAll(int descriptor, char* text) {
  size_t used = 0;
  while (used <= kMaxConfFileBytes) {
    ssize_t n = read(descriptor, text + used, kMaxConfFileBytes + 1 - used);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -1;
    if (n == 0) break;
    used += (size_t)n;
  }
  return (ssize_t)used;
}

/* A folder that is closed to this user does not exist for the user: HOME in containers is often root's. */
static int IsNone(int error, enum ConfFileKind kind) {
  if (kind == kConfNamed) return 0;
  return error == ENOENT || error == ENOTDIR || (kind == kConfOfUser && error == EACCES);
}

/* Returns 1 if `file->text` has the whole text, ended by a zero; 0 if there is no file; -1 if something is
   wrong. */
static int LoadText(const char* path, enum ConfFileKind kind, struct ConfFile* file) {
  /* Not blocking, since it could be a pipe that nobody writes to. */
  int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (descriptor < 0 && IsNone(errno, kind)) return 0;
  if (descriptor < 0)
    return Wrong(file, "%s: it cannot be read: %s; fix or remove it", path, strerror(errno));
  struct stat info;
  int result = fstat(descriptor, &info) == 0
                   ? CheckOwner(path, kind, &info, file)
                   : Wrong(file, "%s: %s; fix or remove it", path, strerror(errno));
  file->text = result == 0 ? malloc(kMaxConfFileBytes + 2) : NULL;
  if (result == 0 && !file->text) result = Wrong(file, "%s: no memory to read it", path);
  ssize_t bytes = result == 0 ? ReadAll(descriptor, file->text) : 0;
  if (bytes < 0) result = Wrong(file, "%s: it cannot be read: %s; fix or remove it", path, strerror(errno));
  close(descriptor);
  if (result != 0) return result;
  if (bytes > kMaxConfFileBytes) return Wrong(file, "%s: it has more than 64 KiB; shorten it", path);
  if (memchr(file->text, '\0', (size_t)bytes))
    return Wrong(file, "%s: it contains a zero byte; it must be text", path);
  file->text[bytes] = '\0';
  return 1;
}

/* --- Its lines --- */

/* Returns the text without spaces around it. */
static char* Trimmed(char* text) {
  while (isspace((unsigned char)*text)) ++text;
  size_t bytes = strlen(text);
  while (bytes && isspace((unsigned char)text[bytes - 1])) text[--bytes] = '\0';
  return text;
}

/* A '#' inside a path begins no comment. */
static void CutComment(char* line) {
  for (char* c = line; *c; ++c) {
    if (*c == '#' && (c == line || isspace((unsigned char)c[-1]))) *c = '\0';
    if (!*c) return;
  }
}

static int IsVariableOf(const char* text, const char* name) {
  if (strcmp(name, "spillway") == 0) return strcmp(text, "SPILLWAY") == 0;
  if (strncmp(text, kPrefix, strlen(kPrefix)) != 0) return 0;
  text += strlen(kPrefix);
  while (*text && *text == toupper((unsigned char)*name)) ++text, ++name;
  return !*text && !*name;
}

/* Returns our name for `text`, a key or a variable. NULL if it is neither. */
static const char* SettingOf(const char* text) {
  for (int i = 0; i < kNameCount; ++i) {
    if (strcmp(text, kNames[i]) == 0 || IsVariableOf(text, kNames[i])) return kNames[i];
  }
  return NULL;
}

static const char* Nearest(const char* text) {
  const char* bare = strncasecmp(text, kPrefix, strlen(kPrefix)) == 0 ? text + strlen(kPrefix) : text;
  const char* nearest = kNames[0];
  for (int i = 0; i < kNameCount; ++i) {
    if (NameDistance(bare, strlen(bare), kNames[i]) < NameDistance(bare, strlen(bare), nearest))
      nearest = kNames[i];
  }
  return nearest;
}

static int MayBeLimited(const char* name) {
  for (int i = 0; i < kLimitedCount; ++i) {
    if (strcmp(kLimited[i], name) == 0) return 1;
  }
  return 0;
}

/* The position of a line. */
struct Place {
  const char* path;
  int line;
  int in_limits;
};

static int AddEntry(const struct Place* at, const char* name, const char* value, struct ConfFile* file) {
  if (FindConfFileEntry(file, name, at->in_limits))
    return Wrong(file, "%s:%d: %s is set twice; remove one of the lines", at->path, at->line, name);
  if (at->in_limits && !MayBeLimited(name))
    return Wrong(file, "%s:%d: %s cannot be limited, only %s, %s and %s; remove the line", at->path,
                 at->line, name, kLimited[0], kLimited[1], kLimited[2]);
  size_t bytes = strlen(at->path) + strlen(name) + 32;
  char* source = malloc(bytes);
  if (!source) return Wrong(file, "%s: no memory to read it", at->path);
  snprintf(source, bytes, "%s:%d: %s", at->path, at->line, name);
  struct ConfFileEntry entry = {name, value, source, at->in_limits};
  file->entries[file->count++] = entry;
  return 0;
}

static int ReadSetting(const struct Place* at, char* text, struct ConfFile* file) {
  char* equals = strchr(text, '=');
  if (!equals || strncmp(text, "export ", 7) == 0)
    return Wrong(file, "%s:%d: expected NAME=VALUE, as in host_memory=20GiB", at->path, at->line);
  *equals = '\0';
  const char* written = Trimmed(text);
  const char* value = Trimmed(equals + 1);
  const char* name = SettingOf(written);
  if (!name)
    return Wrong(file, "%s:%d: %.64s is not a setting of Spillway; the nearest name is %s", at->path, at->line,
                 written, Nearest(written));
  if (!*value)
    return Wrong(file, "%s:%d: %s has no value; remove the line to use the default", at->path, at->line,
                 name);
  if (*value == '"' || *value == '\'')
    return Wrong(file, "%s:%d: values have no quotation marks; remove them", at->path, at->line);
  for (const char* c = value; *c; ++c) {
    if (iscntrl((unsigned char)*c))
      return Wrong(file, "%s:%d: the value of %s has a control character; remove it", at->path, at->line,
                   name);
  }
  return AddEntry(at, name, value, file);
}

static int ReadSection(struct Place* at, enum ConfFileKind kind, const char* text, struct ConfFile* file) {
  if (strcmp(text, "[limits]") != 0)
    return Wrong(file, "%s:%d: %.64s is not a section; the only one is [limits]", at->path, at->line, text);
  if (kind != kConfOfSystem)
    return Wrong(file, "%s:%d: only " SPILLWAY_SYSTEM_CONF " may have [limits]; remove the section",
                 at->path, at->line);
  at->in_limits = 1;
  return 0;
}

static int ReadLines(const char* path, enum ConfFileKind kind, struct ConfFile* file) {
  struct Place at = {path, 0, 0};
  for (char* line = file->text; line;) {
    char* end = strchr(line, '\n');
    if (end) *end = '\0';
    ++at.line;
    CutComment(line);
    char* text = Trimmed(line);
    int result = 0;
    if (*text == '[') {
      result = ReadSection(&at, kind, text, file);
    } else if (*text) {
      result = ReadSetting(&at, text, file);
    }
    if (result != 0) return result;
    line = end ? end + 1 : NULL;
  }
  return 0;
}

int ReadConfFile(const char* path, enum ConfFileKind kind, struct ConfFile* file) {
  memset(file, 0, sizeof(*file));
  int result = LoadText(path, kind, file);
  if (result > 0 && ReadLines(path, kind, file) != 0) result = -1;
  if (result < 0) CloseConfFile(file); /* the problem stays */
  return result;
}

void CloseConfFile(struct ConfFile* file) {
  for (size_t i = 0; i < file->count; ++i) free((char*)file->entries[i].source);
  file->count = 0;
  free(file->text);
  file->text = NULL;
}

const struct ConfFileEntry* FindConfFileEntry(const struct ConfFile* file, const char* name, int is_limit) {
  for (size_t i = 0; i < file->count; ++i) {
    const struct ConfFileEntry* entry = &file->entries[i];
    if (entry->is_limit == is_limit && strcmp(entry->name, name) == 0) return entry;
  }
  return NULL;
}

int UserConfPath(const char* named, const char* config_home, const char* home, char* path, size_t bytes,
                 enum ConfFileKind* kind) {
  *kind = named && *named ? kConfNamed : kConfOfUser;
  int length = 0;
  if (*kind == kConfNamed) {
    if (strcasecmp(named, "none") == 0) return 0;
    length = snprintf(path, bytes, "%s", named);
  } else if (config_home && *config_home == '/') { /* the standard of XDG has a relative one ignored */
    length = snprintf(path, bytes, "%s/spillway.conf", config_home);
  } else if (home && *home == '/') {
    length = snprintf(path, bytes, "%s/.config/spillway.conf", home);
  }
  return length > 0 && (size_t)length < bytes;
}
