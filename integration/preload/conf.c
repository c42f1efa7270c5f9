/* The user's settings: SPILLWAY_ variables, and our keys inside PyTorch's allocator variables. Our keys are
 * taken out of PyTorch's variables, whose parsers stop the job at a key or backend they do not know; the
 * whole text stays in SPILLWAY_ALLOC_CONF_ORIGINAL, from which child processes take the keys. Judges no
 * value: that is the engine's. Grammar and moments: docs/decisions/0001-loading.md. */

#include "integration/preload/shim.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

extern char** environ;

static const char kPrefix[] = "SPILLWAY_";
static const char kOriginal[] = "SPILLWAY_ALLOC_CONF_ORIGINAL";
/* In the order in which they are read: for a key in both, the later one counts. PyTorch's newer name comes
 * first, as PyTorch itself prefers the older one where both are set. */
static const char* const kVariables[] = {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"};

static const char* const kKeys[] = {
#define SETTING(name, ...) #name,
#define RETIRED_SETTING(name, ...) #name,
#include "integration/settings/settings.def"
    "backend", /* taken only when it names us */
};
enum { kKeyCount = sizeof(kKeys) / sizeof(kKeys[0]) };

/* All guarded by mutex_. Values are never freed: a reader may hold one. */
static pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
static struct {
  char* value;
  char* source;
} taken_[kKeyCount];
static int took_;     /* some key was taken, from whatever variable */
static char** fixed_; /* copies of the SPILLWAY_ variables, NULL at the end; NULL before TakeVariables */

void LockConf(void) { pthread_mutex_lock(&mutex_); }
void UnlockConf(void) { pthread_mutex_unlock(&mutex_); }

/* A piece of a text. */
struct Span {
  const char* start;
  size_t bytes;
};

static struct Span Trim(struct Span span) {
  while (span.bytes && isspace((unsigned char)*span.start)) {
    ++span.start;
    --span.bytes;
  }
  while (span.bytes && isspace((unsigned char)span.start[span.bytes - 1])) --span.bytes;
  return span;
}

/* The next entry of a conf text: up to a comma outside brackets. An unclosed bracket reaches to the end. */
static struct Span NextEntry(const char* text) {
  int depth = 0;
  struct Span entry = {text, 0};
  for (; text[entry.bytes]; ++entry.bytes) {
    char c = text[entry.bytes];
    if (c == '[') ++depth;
    if (c == ']' && depth > 0) --depth;
    if (c == ',' && depth == 0) break;
  }
  return entry;
}

/* The index of our key that the entry sets, -1 for PyTorch's own; its value without brackets around it. */
static int ParseEntry(struct Span entry, struct Span* value) {
  const char* colon = memchr(entry.start, ':', entry.bytes);
  size_t key_bytes = colon ? (size_t)(colon - entry.start) : entry.bytes;
  struct Span key = Trim((struct Span){entry.start, key_bytes});
  struct Span rest = {entry.start + key_bytes, entry.bytes - key_bytes};
  if (colon) rest = Trim((struct Span){rest.start + 1, rest.bytes - 1});
  for (int i = 0; i < kKeyCount; ++i) {
    if (strlen(kKeys[i]) != key.bytes || memcmp(kKeys[i], key.start, key.bytes) != 0) continue;
    if (strcmp(kKeys[i], "backend") == 0 && (rest.bytes != 8 || memcmp(rest.start, "spillway", 8) != 0))
      return -1;
    if (rest.bytes >= 2 && rest.start[0] == '[' && rest.start[rest.bytes - 1] == ']') {
      ++rest.start;
      rest.bytes -= 2;
    }
    *value = rest;
    return i;
  }
  return -1;
}

/* Splits a text into our keys, which are remembered under the name of their variable, and the rest, written
 * to `rest` (as long as the text). The number of keys taken. */
static int SplitConf(const char* text, const char* variable, char* rest) {
  int count = 0;
  size_t rest_bytes = 0;
  for (;;) {
    struct Span entry = NextEntry(text), value = {text, 0};
    int key = ParseEntry(entry, &value);
    if (key >= 0) {
      char source[128];
      snprintf(source, sizeof(source), "%s in %s", kKeys[key], variable);
      taken_[key].value = strndup(value.start, value.bytes);
      taken_[key].source = strdup(source);
      ++count;
    } else if (entry.bytes) {
      if (rest_bytes) rest[rest_bytes++] = ',';
      memcpy(rest + rest_bytes, entry.start, entry.bytes);
      rest_bytes += entry.bytes;
    }
    if (entry.start[entry.bytes] == '\0') break;
    text = entry.start + entry.bytes + 1;
  }
  rest[rest_bytes] = '\0';
  return count;
}

static int HasOurs(const char* text) {
  for (;;) {
    struct Span entry = NextEntry(text), value;
    if (ParseEntry(entry, &value) >= 0) return 1;
    if (entry.start[entry.bytes] == '\0') return 0;
    text = entry.start + entry.bytes + 1;
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
  LockConf();
  char* texts[2] = {NULL, NULL};
  int ours = 0;
  for (int i = 0; i < 2; ++i) {
    const char* text = getenv(kVariables[i]);
    if (text) texts[i] = strdup(text);
    if (texts[i]) ours |= HasOurs(texts[i]);
  }
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

/* The name of the variable of a setting: "gpu_memory" -> "SPILLWAY_GPU_MEMORY", "spillway" -> "SPILLWAY". */
static void VariableName(const char* name, char* variable, size_t bytes) {
  snprintf(variable, bytes, "%s%s", strcmp(name, "spillway") == 0 ? "" : kPrefix, name);
  for (char* c = variable; *c; ++c) *c = (char)toupper((unsigned char)*c);
}

static const char* VariableLocked(const char* variable) {
  if (!fixed_) return getenv(variable);
  size_t bytes = strlen(variable);
  for (char** entry = fixed_; *entry; ++entry) {
    if (strncmp(*entry, variable, bytes) == 0 && (*entry)[bytes] == '=') return *entry + bytes + 1;
  }
  return NULL;
}

static int KeyOf(const char* name) {
  for (int i = 0; i < kKeyCount; ++i) {
    if (strcmp(kKeys[i], name) == 0) return i;
  }
  return -1;
}

const char* Setting(const char* name) {
  char variable[128];
  VariableName(name, variable, sizeof(variable));
  LockConf();
  const char* value = VariableLocked(variable);
  int key = KeyOf(name);
  if (!value && key >= 0) value = taken_[key].value;
  UnlockConf();
  return value;
}

/* A copy of the name that lives on; one per name is kept. */
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
  int key = KeyOf(name);
  if (VariableLocked(variable)) {
    source = VariableSource(variable);
  } else if (key >= 0) {
    source = taken_[key].source;
  }
  UnlockConf();
  return source;
}

int SwitchedOff(void) {
  const char* value = Setting("spillway");
  return value && (strcasecmp(value, "off") == 0 || strcmp(value, "0") == 0);
}
