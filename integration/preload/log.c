/* Lines of the shim for people: one whole line per call on standard error, written without stdio, since a
   fork may leave stdio's locks taken. */

#include "integration/preload/shim.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static atomic_int silent_; /* set once; a line that slips through does no harm */

void SilenceLog(void) { atomic_store(&silent_, 1); }

static void WriteLine(const char* part, va_list parts) {
  char line[1024] = "spillway: ";
  size_t used = strlen(line);
  for (; part; part = va_arg(parts, const char*)) {
    size_t bytes = strlen(part);
    if (bytes > sizeof(line) - 1 - used) bytes = sizeof(line) - 1 - used;
    memcpy(line + used, part, bytes);
    used += bytes;
  }
  line[used++] = '\n';
  ssize_t written = write(STDERR_FILENO, line, used);
  (void)written; /* there is nowhere else to report it */
}

void LogLine(const char* part, ...) {
  if (atomic_load(&silent_)) return;
  va_list parts;
  va_start(parts, part);
  WriteLine(part, parts);
  va_end(parts);
}

void LogFatal(const char* part, ...) {
  va_list parts;
  va_start(parts, part);
  WriteLine(part, parts);
  va_end(parts);
}
