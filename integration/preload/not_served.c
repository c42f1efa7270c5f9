/* The message of the shim for a process that Spillway cannot serve: one line, and the end of the process if
   the user asked for that (SPILLWAY_REQUIRE). The engine does the same for what it finds (torch_swap,
   engine). */

#include <unistd.h>

#include "integration/preload/shim.h"

enum { kExitNotServed = 2 };

void NotServed(const char* what, const char* why, const char* consequence) {
  if (!Required()) {
    LogLine(what, why, consequence, " (SPILLWAY_REQUIRE=1 ends the job instead)", NULL);
    return;
  }
  LogFatal(what, why, "; the job ends, as ", SettingSource("require"), " asks", NULL);
  _exit(kExitNotServed); /* exit handlers may wait for a lock that this thread has */
}
