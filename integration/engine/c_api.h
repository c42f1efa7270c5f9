// The engine's side of spillway.h: the table of functions over the Runtime. Errors become CUresult values and
// a text of the calling thread; no exception crosses it.

#ifndef SPILLWAY_INTEGRATION_ENGINE_C_API_H_
#define SPILLWAY_INTEGRATION_ENGINE_C_API_H_

#include "integration/engine/spillway.h"

namespace spillway::integration {

// One table for the process; its calls answer 3 (not initialised) while there is no Runtime.
const spillway_api* GetApi();

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_C_API_H_
