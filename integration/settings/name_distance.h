/* How far a name that nobody knows is from one that exists, for the messages that offer the nearest. Pure;
 * any thread; nothing fails. C, since the preload asks, too. */

#ifndef SPILLWAY_INTEGRATION_SETTINGS_NAME_DISTANCE_H_
#define SPILLWAY_INTEGRATION_SETTINGS_NAME_DISTANCE_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes of one letter that make `name` of the `bytes` at `text`; case does not count. A name of more than
 * 48 letters is farther than any other: SIZE_MAX. */
size_t NameDistance(const char* text, size_t bytes, const char* name);

#ifdef __cplusplus
}
#endif

#endif /* SPILLWAY_INTEGRATION_SETTINGS_NAME_DISTANCE_H_ */
