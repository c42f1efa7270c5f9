/* Finds slips in PyTorch's variables before PyTorch's parser meets them, which ends the job with a bare word,
   or with a stack of frames. Values of our keys are not judged here: the engine does that. */

#include "integration/preload/conf_text.h"

#include <stdio.h>
#include <string.h>

#include "integration/settings/name_distance.h"

/* The keys of PyTorch's own parsers, 2.4 to 2.15. */
static const char* const kPyTorchKeys[] = {
    "backend",
    "expandable_segments",
    "expandable_segments_reserve",
    "expandable_segments_reserve_by_class",
    "garbage_collection_threshold",
    "graph_capture_record_stream_reuse",
    "large_segment_size_mb",
    "max_non_split_rounding_mb",
    "max_split_size_mb",
    "per_process_memory_fraction",
    "pinned_free_catch_all",
    "pinned_max_cached_size_mb",
    "pinned_max_round_threshold_mb",
    "pinned_num_register_threads",
    "pinned_reserve_segment_size_mb",
    "pinned_use_background_threads",
    "pinned_use_cuda_host_register",
    "pinned_use_hip_host_register",
    "release_lock_on_cudamalloc",
    "release_lock_on_hipmalloc",
    "roundup_power2_divisions",
    "throw_on_cudamalloc_oom",
};
enum { kPyTorchKeyCount = sizeof(kPyTorchKeys) / sizeof(kPyTorchKeys[0]) };

static int IsPyTorchs(struct Span key) {
  for (int i = 0; i < kPyTorchKeyCount; ++i) {
    if (SpanIs(key, kPyTorchKeys[i])) return 1;
  }
  return 0;
}

static const char* Nearest(struct Span key) {
  const char* nearest = "backend";
  for (int i = 0; i < ConfKeyCount() + kPyTorchKeyCount; ++i) {
    const char* name = i < ConfKeyCount() ? ConfKey(i) : kPyTorchKeys[i - ConfKeyCount()];
    if (NameDistance(key.start, key.bytes, name) < NameDistance(key.start, key.bytes, nearest))
      nearest = name;
  }
  return nearest;
}

static int IsDirectory(struct Span key) { return key.bytes && *key.start == '/'; }

static int IsRate(struct Span key) {
  return SpanIs(key, "read") || SpanIs(key, "write") || SpanIs(key, "latency");
}

/* The types of settings.def whose values are lists, and the test for the beginning of an item of such a list.
 */
static const struct ListType {
  const char* type;
  int (*is_item)(struct Span key);
} kListTypes[] = {{"Directories", IsDirectory}, {"ModelledDisk", IsRate}};

static const struct ListType* ListTypeOf(int key) {
  for (size_t i = 0; key >= 0 && i < sizeof(kListTypes) / sizeof(kListTypes[0]); ++i) {
    if (strcmp(ConfType(key), kListTypes[i].type) == 0) return &kListTypes[i];
  }
  return NULL;
}

/* Returns 1 if `entry` continues a list whose brackets are missing: "/b" of "dirs:/a,/b". */
static int GoesOn(int list, const struct ConfEntry* entry) {
  const struct ListType* type = ListTypeOf(list);
  return type && type->is_item(entry->key);
}

static int IsList(const struct ConfEntry* entry) { return !entry->bracketed && ListTypeOf(entry->ours); }

int NamesOurBackend(const char* text) {
  struct ConfEntry entry;
  while (NextConfEntry(&text, &entry)) {
    if (entry.ours >= 0 && strcmp(ConfKey(entry.ours), "backend") == 0) return 1;
  }
  return 0;
}

/* Writes the part of the text from the list's value to the end of `last`, in brackets. */
static int WriteMissingBrackets(char* words, size_t bytes, const char* variable, const struct ConfEntry* list,
                                const struct ConfEntry* last) {
  const char* key = ConfKey(list->ours);
  int length = (int)(last->whole.start + last->whole.bytes - list->value.start);
  snprintf(words, bytes, "%s in %s: a list needs brackets, as in %s:[%.*s]", key, variable, key, length,
           list->value.start);
  return 1;
}

int FindConfSlip(const char* text, const char* variable, int beside_ours, char* words, size_t bytes) {
  struct ConfEntry entry, list = {.ours = -1}, last = {.ours = -1};
  int goes_on = 0;
  while (NextConfEntry(&text, &entry)) {
    if (entry.ours < 0 && GoesOn(list.ours, &entry)) {
      last = entry;
      goes_on = 1;
      continue;
    }
    if (goes_on) break;
    list.ours = -1;
    if (IsList(&entry)) list = entry;
    if (entry.ours >= 0 || !entry.key.bytes) continue;
    if (SpanIs(entry.key, "backend") && NameDistance(entry.value.start, entry.value.bytes, "spillway") <= 2) {
      snprintf(words, bytes,
               "backend in %s=%.*s is invalid; expected: spillway, native or cudaMallocAsync", variable,
               (int)entry.value.bytes, entry.value.start);
      return 1;
    }
    if (!beside_ours || IsPyTorchs(entry.key)) continue;
    snprintf(words, bytes,
             "%.*s in %s is a setting of neither Spillway nor PyTorch; the nearest name is %s",
             (int)entry.key.bytes, entry.key.start, variable, Nearest(entry.key));
    return 1;
  }
  return goes_on ? WriteMissingBrackets(words, bytes, variable, &list, &last) : 0;
}
