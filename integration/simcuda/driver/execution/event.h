// Events, as far as files other than event_api.cc know of them: they end with their context. Thread-safe; no
// call fails.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_EXECUTION_EVENT_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_EXECUTION_EVENT_H_

namespace simcuda {

class Context;

// Ends the events that were made in a context that ends: their handles are invalid from then on.
void EndEventsOf(const Context& context);

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_EXECUTION_EVENT_H_
