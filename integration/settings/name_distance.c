#include "integration/settings/name_distance.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>

enum { kLongestName = 48 };

static size_t Least(size_t a, size_t b) { return a < b ? a : b; }

static int Differ(char a, char b) { return tolower((unsigned char)a) != tolower((unsigned char)b); }

size_t NameDistance(const char* text, size_t bytes, const char* name) {
  size_t row[kLongestName + 1];
  size_t columns = strlen(name);
  if (columns > kLongestName) return SIZE_MAX;
  for (size_t j = 0; j <= columns; ++j) row[j] = j;
  for (size_t i = 1; i <= bytes; ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= columns; ++j) {
      size_t replaced = diagonal + (size_t)Differ(text[i - 1], name[j - 1]);
      diagonal = row[j];
      row[j] = Least(Least(row[j] + 1, row[j - 1] + 1), replaced);
    }
  }
  return row[columns];
}
