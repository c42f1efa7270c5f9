// The engine's side of spillway.h: the table of functions over the Runtime. Errors become CUresult values and
// a text of the calling thread; no exception leaves it. Any thread may call the functions.

#ifndef SPILLWAY_INTEGRATION_ENGINE_C_API_H_
#define SPILLWAY_INTEGRATION_ENGINE_C_API_H_

#include "integration/engine/spillway.h"

namespace spillway::integration {

// Returns the one table of the process. Its calls return 3 (not initialized) while there is no Runtime.
const spillway_api* GetApi();

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_C_API_H_
