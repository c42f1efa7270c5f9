// The limits of an operator ([limits] of /etc/spillway.conf) on what a user sets. settings.h applies them as
// soon as a value is read; where a share must be compared with bytes, that waits until what it is a share of
// is known, and then whoever sizes the tier asks Limited(). Pure functions; any thread.

#ifndef SPILLWAY_INTEGRATION_SETTINGS_SETTING_LIMITS_H_
#define SPILLWAY_INTEGRATION_SETTINGS_SETTING_LIMITS_H_

#include <cstdint>
#include <optional>

#include "integration/settings/setting_values.h"

namespace spillway::integration {

// The smaller of both; where one is a share and the other is not, `value` as it is. `limit` none: no limit.
Size LimitedSize(const Size& value, const std::optional<Size>& limit);

// At most `limit` of `whole`. None: `bytes` as they are.
uint64_t Limited(uint64_t bytes, const std::optional<Size>& limit, uint64_t whole);

// What may be written by both: the smaller amount at once, at the lower rate. A value of none has no bound of
// its own.
std::optional<WriteLimit> LimitedWrites(const std::optional<WriteLimit>& value,
                                        const std::optional<WriteLimit>& limit);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_SETTINGS_SETTING_LIMITS_H_
