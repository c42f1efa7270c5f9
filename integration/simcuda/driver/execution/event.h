// Events, as far as files other than event_api.cc know of them: that they end with their context. Thread-safe;
// nothing fails.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_EXECUTION_EVENT_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_EXECUTION_EVENT_H_

namespace simcuda {

class Context;

// The context's end is that of the events that were made in it: their handles are none any more.
void EndEventsOf(const Context& context);

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_EXECUTION_EVENT_H_
