// SIGUSR1 as a request for a status line, where the user set that (SPILLWAY_STATUS). The handler stores a
// flag and writes to an eventfd, which wakes the reporter; it does nothing else. The engine installs it when
// it opens. A handler that the job installed before is left alone: installing ours fails. A signal comes on
// any thread; requests are taken on any.

#ifndef SPILLWAY_INTEGRATION_ENGINE_STATUS_SIGNAL_H_
#define SPILLWAY_INTEGRATION_ENGINE_STATUS_SIGNAL_H_

namespace spillway::integration {

// Installs the handler for the process. False when SIGUSR1 is handled or ignored already; then nothing
// changes.
bool InstallStatusSignal();

// From now on each signal also adds 1 to this eventfd (non-blocking); -1: to none. The descriptor must stay
// open until it is taken away here.
void SetStatusWake(int eventfd);

// Whether a signal came since the last call. Any thread.
bool TakeStatusRequest();

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_STATUS_SIGNAL_H_
