// Signals as requests, where the user set that: SIGUSR1 for a status line (SPILLWAY_STATUS), SIGUSR2 for a
// pause and its end (SPILLWAY_PAUSE). The handler stores a flag and writes to an eventfd, which wakes the
// reporter; it does nothing else. The engine installs it when it opens. A handler that the job installed
// before is left alone: installing ours fails. A signal comes on any thread; requests are taken on any.

#ifndef SPILLWAY_INTEGRATION_ENGINE_REQUEST_SIGNALS_H_
#define SPILLWAY_INTEGRATION_ENGINE_REQUEST_SIGNALS_H_

#include <cstdint>

namespace spillway::integration {

enum class SignalRequest : int { kStatus, kPause };

// The signal that stands for it.
int SignalOf(SignalRequest request);

// Installs the handler for the process. False when the signal is handled or ignored already; then nothing
// changes.
bool InstallRequestSignal(SignalRequest request);

// From now on each signal also adds 1 to this eventfd (non-blocking); -1: to none. The descriptor must stay
// open until it is taken away here.
void SetRequestWake(int eventfd);

// Whether a signal came since the last call. Any thread.
bool TakeRequest(SignalRequest request);

// How many have come in all. A system call that a signal has interrupted was not interrupted by one of these
// if it has not changed. Any thread.
uint64_t RequestSignals();

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_REQUEST_SIGNALS_H_
