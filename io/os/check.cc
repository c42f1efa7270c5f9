#include "io/os/check.h"

#include <unistd.h>
#include <cstdio>
#include <cstdlib>

namespace spillway::os {

void CheckFailed(const char* file, int line, const char* condition) {
  char text[512];
  const int length =
      std::snprintf(text, sizeof(text), "spillway: CHECK failed at %s:%d: %s\n", file, line, condition);
  if (length > 0) {
    const ssize_t ignored =
        write(2, text, static_cast<size_t>(length) < sizeof(text) ? length : sizeof(text) - 1);
    (void)ignored;
  }
  std::abort();
}

}  // namespace spillway::os
