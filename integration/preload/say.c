/* Lines of the shim for people: one whole line per call on standard error, without stdio, since a fork may
 * leave stdio's locks taken. */

#include "integration/preload/shim.h"

#include <stdarg.h>
#include <string.h>
#include <unistd.h>

void Say(const char* part, ...) {
  char line[1024] = "spillway: ";
  size_t used = strlen(line);
  va_list parts;
  va_start(parts, part);
  for (; part; part = va_arg(parts, const char*)) {
    size_t bytes = strlen(part);
    if (bytes > sizeof(line) - 1 - used) bytes = sizeof(line) - 1 - used;
    memcpy(line + used, part, bytes);
    used += bytes;
  }
  va_end(parts);
  line[used++] = '\n';
  ssize_t written = write(STDERR_FILENO, line, used);
  (void)written; /* there is nowhere else to report it */
}
