// SIGUSR1, where the user asked for it: marks that a status line is wanted, and wakes whoever writes it. The handler
// only stores a flag and writes to an eventfd. A handler that the job installed, before or after, is left alone.

#ifndef SPILLWAY_INTEGRATION_ENGINE_STATUS_SIGNAL_H_
#define SPILLWAY_INTEGRATION_ENGINE_STATUS_SIGNAL_H_

namespace spillway::integration {

// Installs the handler for the process; false when SIGUSR1 is handled or ignored already, and nothing is changed.
bool InstallStatusSignal();

// From now on each signal also adds 1 to this eventfd (non-blocking); -1: to none. The descriptor must stay open until
// it is taken away here.
void SetStatusWake(int eventfd);

// True once for all signals since the last call. Any thread.
bool TakeStatusRequest();

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_STATUS_SIGNAL_H_
