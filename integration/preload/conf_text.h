/* PyTorch's allocator variables: their entries, which of these are ours, and which contents can only be a
 * slip. The preload uses this, and so does the command line, which judges the variables as a job does. Pure
 * functions of the text; thread-safe. C, with no dependency but libc. */

#ifndef SPILLWAY_INTEGRATION_PRELOAD_CONF_TEXT_H_
#define SPILLWAY_INTEGRATION_PRELOAD_CONF_TEXT_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- conf_text.c: entries ------------------------------------------------------------------------------- */

/* A piece of a text. */
struct Span {
  const char* start;
  size_t bytes;
};
int SpanIs(struct Span span, const char* text);

enum { kMaxConfKeys = 48 };
/* Our keys, by number: the settings and `backend`. FindConfKey returns -1 for a name that is no key of ours.
 */
int ConfKeyCount(void);
const char* ConfKey(int key);
/* Returns the type of the key's row, as settings.def writes it; empty if the key has none. */
const char* ConfType(int key);
int FindConfKey(const char* name);

struct ConfEntry {
  struct Span whole, key, value; /* key and value without spaces around them */
  int ours;                      /* the number of our key that it sets; -1: PyTorch's own */
  int bracketed;                 /* the value stands in brackets */
};
/* Reads the next entry of a text: up to a comma outside brackets; an unclosed bracket reaches to the end.
 * Moves `text` on, to NULL after the last entry. Returns 0 if there is none. */
int NextConfEntry(const char** text, struct ConfEntry* entry);

/* --- conf_check.c: slips -------------------------------------------------------------------------------- */

/* Returns 1 if the text has backend:spillway. */
int NamesOurBackend(const char* text);
/* Returns 1 if the text of that variable has a slip; `words` then gets a sentence that says what is wrong and
 * what may be meant. Keys that nobody knows are judged only `beside_ours`: if some text names our backend. */
int FindConfSlip(const char* text, const char* variable, int beside_ours, char* words, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif /* SPILLWAY_INTEGRATION_PRELOAD_CONF_TEXT_H_ */
