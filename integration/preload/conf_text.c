/* The grammar of PyTorch's allocator variables: entries "key:value" between commas, lists in brackets. Also
   decides which entries are ours. Pure functions of the text; thread-safe. */

#include "integration/preload/conf_text.h"

#include <ctype.h>
#include <string.h>

static const char* const kKeys[] = {
#define SETTING(name, ...) #name,
#include "integration/settings/settings.def"
    "backend", /* taken only if it names us */
};
static const char* const kTypes[] = {
#define SETTING(name, type, ...) #type,
#include "integration/settings/settings.def"
    "", /* backend */
};
_Static_assert(sizeof(kTypes) == sizeof(kKeys), "a type for each key");
_Static_assert(sizeof(kKeys) / sizeof(kKeys[0]) <= kMaxConfKeys, "kMaxConfKeys is too small");

int ConfKeyCount(void) { return (int)(sizeof(kKeys) / sizeof(kKeys[0])); }

const char* ConfKey(int key) { return kKeys[key]; }

const char* ConfType(int key) { return kTypes[key]; }

int FindConfKey(const char* name) {
  for (int i = 0; i < ConfKeyCount(); ++i) {
    if (strcmp(kKeys[i], name) == 0) return i;
  }
  return -1;
}

int SpanIs(struct Span span, const char* text) {
  return strlen(text) == span.bytes && memcmp(text, span.start, span.bytes) == 0;
}

static struct Span Trim(struct Span span) {
  while (span.bytes && isspace((unsigned char)*span.start)) {
    ++span.start;
    --span.bytes;
  }
  while (span.bytes && isspace((unsigned char)span.start[span.bytes - 1])) --span.bytes;
  return span;
}

int NextConfEntry(const char** text, struct ConfEntry* entry) {
  if (!*text) return 0;
  struct Span whole = {*text, 0};
  int depth = 0;
  for (; whole.start[whole.bytes]; ++whole.bytes) {
    char c = whole.start[whole.bytes];
    if (c == '[') ++depth;
    if (c == ']' && depth > 0) --depth;
    if (c == ',' && depth == 0) break;
  }
  const char* colon = memchr(whole.start, ':', whole.bytes);
  size_t key_bytes = colon ? (size_t)(colon - whole.start) : whole.bytes;
  entry->whole = whole;
  entry->key = Trim((struct Span){whole.start, key_bytes});
  entry->value = (struct Span){whole.start + key_bytes, whole.bytes - key_bytes};
  if (colon) entry->value = Trim((struct Span){colon + 1, whole.bytes - key_bytes - 1});
  entry->ours = -1;
  for (int i = 0; i < ConfKeyCount(); ++i) {
    if (SpanIs(entry->key, kKeys[i])) entry->ours = i;
  }
  if (entry->ours >= 0 && strcmp(kKeys[entry->ours], "backend") == 0 && !SpanIs(entry->value, "spillway"))
    entry->ours = -1;
  struct Span* value = &entry->value;
  entry->bracketed = value->bytes >= 2 && value->start[0] == '[' && value->start[value->bytes - 1] == ']';
  *text = whole.start[whole.bytes] ? whole.start + whole.bytes + 1 : NULL;
  return 1;
}
