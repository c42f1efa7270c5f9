/* The user's settings: SPILLWAY_ variables, our keys inside PyTorch's allocator variables, and files of
 * settings (settings/conf_file.h), the user's before the system's. Our keys are taken out of PyTorch's
 * variables, whose parsers stop the job at a key or backend they do not know. The whole text stays in
 * SPILLWAY_ALLOC_CONF_ORIGINAL, from which child processes take the keys. No value is judged here: the engine
 * does that. docs/decisions/0001-loading.md has the grammar and the moments. */

#include "integration/preload/shim.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "integration/settings/conf_file.h"

extern char** environ;

static const char kPrefix[] = "SPILLWAY_";
static const char kOriginal[] = "SPILLWAY_ALLOC_CONF_ORIGINAL";
/* The variables in the order in which they are read: the later one counts for a key in both. PyTorch's newer
 * name comes first, as PyTorch itself prefers the older one if both are set. */
static const char* const kVariables[] = {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"};

/* All of these are guarded by mutex_. Values are never freed, since a reader may still use one. */
static pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
static struct {
  char* value;
  char* source;
} taken_[kMaxConfKeys];
static int took_;                        /* some key was taken, from whatever variable */
static struct ConfFile users_, systems_; /* read once, constant after that */
static int read_;                        /* they have been read */
static char** fixed_; /* copies of the SPILLWAY_ variables, NULL at the end; NULL before TakeVariables */

void LockConf(void) { pthread_mutex_lock(&mutex_); }
void UnlockConf(void) { pthread_mutex_unlock(&mutex_); }

/* Splits a text into our keys, which are remembered under the name of their variable, and the rest, which is
 * written to `rest` (as long as the text). Returns the number of keys taken. */
static int SplitConf(const char* text, const char* variable, char* rest) {
  int count = 0;
  size_t rest_bytes = 0;
  struct ConfEntry entry;
  while (NextConfEntry(&text, &entry)) {
    if (entry.ours >= 0) {
      char source[128];
      snprintf(source, sizeof(source), "%s in %s", ConfKey(entry.ours), variable);
      size_t bracket = entry.bracketed ? 1 : 0;
      taken_[entry.ours].value = strndup(entry.value.start + bracket, entry.value.bytes - 2 * bracket);
      taken_[entry.ours].source = strdup(source);
      ++count;
    } else if (entry.whole.bytes) {
      if (rest_bytes) rest[rest_bytes++] = ',';
      memcpy(rest + rest_bytes, entry.whole.start, entry.whole.bytes);
      rest_bytes += entry.whole.bytes;
    }
  }
  rest[rest_bytes] = '\0';
  return count;
}

static int HasOurs(const char* text) {
  struct ConfEntry entry;
  while (NextConfEntry(&text, &entry)) {
    if (entry.ours >= 0) return 1;
  }
  return 0;
}

/* Ends the process for a slip in one of the texts (NULL: not set). PyTorch's parser would end it, too, with a
 * poorer message. */
static void RefuseSlips(char* const* texts) {
  int beside_ours = 0;
  for (int i = 0; i < 2; ++i) beside_ours |= texts[i] && NamesOurBackend(texts[i]);
  for (int i = 0; i < 2; ++i) {
    char words[768];
    if (!texts[i] || !FindConfSlip(texts[i], kVariables[i], beside_ours, words, sizeof(words))) continue;
    LogFatal(words, NULL);
    _exit(kExitBadSetting);
  }
}

/* Copies of both variables, since setenv may move them. */
static void KeepOriginal(char* const* texts) {
  const char* first = texts[0] ? texts[0] : "";
  const char* second = texts[1] ? texts[1] : "";
  size_t bytes = strlen(first) + strlen(second) + 2;
  char* both = malloc(bytes);
  if (!both) return;
  snprintf(both, bytes, "%s%s%s", first, *first && *second ? "," : "", second);
  setenv(kOriginal, both, 1);
  free(both);
}

static void TakeFrom(const char* variable, const char* text) {
  char* rest = malloc(strlen(text) + 1);
  if (!rest) return;
  if (SplitConf(text, variable, rest)) {
    took_ = 1;
    if (*rest) {
      setenv(variable, rest, 1);
    } else {
      unsetenv(variable);
    }
  }
  free(rest);
}

static void TakeFromParent(void) {
  const char* original = getenv(kOriginal);
  char* rest = original ? malloc(strlen(original) + 1) : NULL;
  if (!rest) return;
  took_ = SplitConf(original, kOriginal, rest) > 0;
  free(rest);
}

void TakeConf(void) {
  int off = SwitchedOff();
  LockConf();
  char* texts[2] = {NULL, NULL};
  int ours = 0;
  for (int i = 0; i < 2; ++i) {
    const char* text = getenv(kVariables[i]);
    if (text) texts[i] = strdup(text);
    if (texts[i]) ours |= HasOurs(texts[i]);
  }
  if (!off) RefuseSlips(texts);
  if (ours) {
    KeepOriginal(texts);
    for (int i = 0; i < 2; ++i) {
      if (texts[i]) TakeFrom(kVariables[i], texts[i]);
    }
  } else if (!took_) {
    TakeFromParent();
  }
  free(texts[0]);
  free(texts[1]);
  UnlockConf();
  const char* log = Setting("log");
  if (log && strcasecmp(log, "off") == 0) SilenceLog();
}

void TakeVariables(void) {
  LockConf();
  size_t count = 0, used = 0;
  for (char** entry = environ; entry && *entry; ++entry) ++count;
  char** copies = fixed_ ? NULL : calloc(count + 1, sizeof(char*));
  for (char** entry = environ; copies && entry && *entry && used < count; ++entry) {
    if (strncmp(*entry, "SPILLWAY", strlen("SPILLWAY")) != 0) continue;
    copies[used] = strdup(*entry);
    if (copies[used]) ++used;
  }
  if (copies) fixed_ = copies;
  UnlockConf();
}

/* Writes the name of a setting's variable: "gpu_memory" -> "SPILLWAY_GPU_MEMORY", "spillway" -> "SPILLWAY".
 */
static void VariableName(const char* name, char* variable, size_t bytes) {
  snprintf(variable, bytes, "%s%s", strcmp(name, "spillway") == 0 ? "" : kPrefix, name);
  for (char* c = variable; *c; ++c) *c = (char)toupper((unsigned char)*c);
}

/* Returns the variable's value; NULL if it is not set, or empty. */
static const char* VariableLocked(const char* variable) {
  size_t bytes = strlen(variable);
  const char* value = fixed_ ? NULL : getenv(variable);
  for (char** entry = fixed_; entry && *entry; ++entry) {
    if (strncmp(*entry, variable, bytes) == 0 && (*entry)[bytes] == '=') value = *entry + bytes + 1;
  }
  return value && *value ? value : NULL;
}

/* Reads the files at the first question, so a process that never asks opens no file. A process with more
 * rights than its user takes no path from the user. */
static void ReadFilesLocked(void) {
  char path[4096];
  enum ConfFileKind kind;
  if (read_) return;
  read_ = 1;
  ReadConfFile(SPILLWAY_SYSTEM_CONF, kConfOfSystem, &systems_);
  if (UserConfPath(secure_getenv("SPILLWAY_CONF"), secure_getenv("XDG_CONFIG_HOME"), secure_getenv("HOME"),
                   path, sizeof(path), &kind)) {
    ReadConfFile(path, kind, &users_);
  }
}

static const struct ConfFileEntry* InFilesLocked(const char* name) {
  ReadFilesLocked();
  const struct ConfFileEntry* entry = FindConfFileEntry(&users_, name, 0);
  return entry ? entry : FindConfFileEntry(&systems_, name, 0);
}

const char* OwnSetting(const char* name) {
  char variable[128];
  VariableName(name, variable, sizeof(variable));
  LockConf();
  const char* value = VariableLocked(variable);
  int key = FindConfKey(name);
  if (!value && key >= 0) value = taken_[key].value;
  UnlockConf();
  return value;
}

const char* Setting(const char* name) {
  const char* value = OwnSetting(name);
  if (value) return value;
  LockConf();
  const struct ConfFileEntry* entry = InFilesLocked(name);
  UnlockConf();
  return entry ? entry->value : NULL;
}

static const struct ConfFileEntry* Limit(const char* name) {
  LockConf();
  ReadFilesLocked();
  UnlockConf();
  return FindConfFileEntry(&systems_, name, 1);
}

const char* SettingLimit(const char* name) {
  const struct ConfFileEntry* entry = Limit(name);
  return entry ? entry->value : NULL;
}

const char* SettingLimitSource(const char* name) {
  const struct ConfFileEntry* entry = Limit(name);
  return entry ? entry->source : NULL;
}

void RefuseConfFiles(void) {
  if (SwitchedOff()) return;
  Limit(""); /* reads them, if that has not been done */
  const char* problem = *systems_.problem ? systems_.problem : users_.problem;
  if (!*problem) return;
  LogFatal(problem, NULL);
  _exit(kExitBadSetting);
}

/* Returns a copy of the name that lives on; one per name is kept. */
static const char* VariableSource(const char* variable) {
  static char* names[64]; /* more than there are settings */
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
    if (!names[i]) names[i] = strdup(variable);
    if (!names[i] || strcmp(names[i], variable) == 0) return names[i];
  }
  return NULL;
}

const char* SettingSource(const char* name) {
  char variable[128];
  VariableName(name, variable, sizeof(variable));
  LockConf();
  const char* source = NULL;
  int key = FindConfKey(name);
  if (VariableLocked(variable)) {
    source = VariableSource(variable);
  } else if (key >= 0 && taken_[key].value) {
    source = taken_[key].source;
  } else {
    const struct ConfFileEntry* entry = InFilesLocked(name);
    if (entry) source = entry->source;
  }
  UnlockConf();
  return source;
}

int SwitchedOff(void) {
  const char* value = Setting("spillway");
  return value && (strcasecmp(value, "off") == 0 || strcmp(value, "0") == 0);
}

/* Any value other than "off" and "0" counts as "on": if the engine cannot be opened, nobody judges the value.
 */
int Required(void) {
  const char* value = Setting("require");
  return value && *value && strcasecmp(value, "off") != 0 && strcmp(value, "0") != 0 && !SwitchedOff();
}
