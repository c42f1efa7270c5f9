/* The distance of a name that nobody knows from one that exists, for messages that offer the nearest. Pure;
   thread-safe; cannot fail. C, since the preload uses it, too. */

#ifndef SPILLWAY_INTEGRATION_SETTINGS_NAME_DISTANCE_H_
#define SPILLWAY_INTEGRATION_SETTINGS_NAME_DISTANCE_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the number of one-letter changes that make `name` of the `bytes` at `text`; case does not count. A
   name of more than 48 letters is farther than any other: SIZE_MAX. */
size_t NameDistance(const char* text, size_t bytes, const char* name);

#ifdef __cplusplus
}
#endif

#endif /* SPILLWAY_INTEGRATION_SETTINGS_NAME_DISTANCE_H_ */
