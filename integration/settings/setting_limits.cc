#include "integration/settings/setting_limits.h"

#include <algorithm>
#include <chrono>

namespace spillway::integration {

Size LimitedSize(const Size& value, const std::optional<Size>& limit) {
  if (!limit || (value.percent > 0) != (limit->percent > 0)) return value;
  const bool above = value.percent > 0 ? value.percent > limit->percent : value.bytes > limit->bytes;
  return above ? *limit : value;
}

uint64_t Limited(uint64_t bytes, const std::optional<Size>& limit, uint64_t whole) {
  return limit ? std::min(bytes, limit->Of(whole)) : bytes;
}

std::optional<WriteLimit> LimitedWrites(const std::optional<WriteLimit>& value,
                                        const std::optional<WriteLimit>& limit) {
  if (!value || !limit) return value ? value : limit;
  const auto rate_of = [](const WriteLimit& one) {
    return static_cast<double>(one.bytes) / static_cast<double>(one.interval.count());
  };
  if (value->bytes == 0 || (value->bytes <= limit->bytes && rate_of(*value) <= rate_of(*limit))) return value;
  if (limit->bytes == 0 || (limit->bytes <= value->bytes && rate_of(*limit) <= rate_of(*value))) return limit;
  WriteLimit both;
  both.bytes = std::min(value->bytes, limit->bytes);
  const double rate = std::min(rate_of(*value), rate_of(*limit));
  both.interval = std::chrono::nanoseconds(static_cast<int64_t>(static_cast<double>(both.bytes) / rate));
  return both;
}

}  // namespace spillway::integration
