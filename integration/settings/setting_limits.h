// The limits of an operator ([limits] of /etc/spillway.conf) on what a user sets. settings.h applies them as
// soon as a value is read. A share cannot be compared with bytes until its whole is known; the code that
// sizes the tier asks Limited() then. Pure functions; thread-safe.

#ifndef SPILLWAY_INTEGRATION_SETTINGS_SETTING_LIMITS_H_
#define SPILLWAY_INTEGRATION_SETTINGS_SETTING_LIMITS_H_

#include <cstdint>
#include <optional>

#include "integration/settings/setting_values.h"

namespace spillway::integration {

// Returns the smaller of both. If one is a share and the other is not, returns `value` as it is. `limit`
// none: no limit.
Size LimitedSize(const Size& value, const std::optional<Size>& limit);

// Returns `bytes`, but at most `limit` of `whole`. None: `bytes` as they are.
uint64_t Limited(uint64_t bytes, const std::optional<Size>& limit, uint64_t whole);

// Returns what may be written by both: the smaller amount at once, at the lower rate. A value of none has no
// bound of its own.
std::optional<WriteLimit> LimitedWrites(const std::optional<WriteLimit>& value,
                                        const std::optional<WriteLimit>& limit);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_SETTINGS_SETTING_LIMITS_H_
