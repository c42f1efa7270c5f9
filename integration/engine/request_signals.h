// Signals as requests, if the user set that: SIGUSR1 for a status line (SPILLWAY_STATUS), SIGUSR2 for a pause
// and its end (SPILLWAY_PAUSE). The handler stores a flag and writes to an eventfd, which wakes the reporter;
// it does nothing else. The engine installs it when it opens. A handler that the job installed before is left
// alone: installing ours fails. A signal comes on any thread; requests are taken on any thread.

#ifndef SPILLWAY_INTEGRATION_ENGINE_REQUEST_SIGNALS_H_
#define SPILLWAY_INTEGRATION_ENGINE_REQUEST_SIGNALS_H_

#include <cstdint>

namespace spillway::integration {

enum class SignalRequest : int { kStatus, kPause };

// Returns the signal that stands for the request.
int SignalOf(SignalRequest request);

// Installs the handler for the process. Returns false if the signal is handled or ignored already; nothing
// changes then.
bool InstallRequestSignal(SignalRequest request);

// Makes each signal from now on also add 1 to this eventfd (non-blocking); -1: to none. The descriptor must
// stay open until it is taken away here.
void SetRequestWake(int eventfd);

// Returns whether a signal came since the last call. Thread-safe.
bool TakeRequest(SignalRequest request);

// Returns the number of signals that have come. If it has not changed, a system call that a signal has
// interrupted was not interrupted by one of these. Thread-safe.
uint64_t RequestSignals();

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_REQUEST_SIGNALS_H_
