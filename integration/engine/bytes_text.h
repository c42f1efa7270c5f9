// Sizes in words for people, in messages and reports. Pure; any thread; nothing fails.

#ifndef SPILLWAY_INTEGRATION_ENGINE_BYTES_TEXT_H_
#define SPILLWAY_INTEGRATION_ENGINE_BYTES_TEXT_H_

#include <cstdint>
#include <string>

namespace spillway::integration {

// "1.50 GiB"; below a KiB without a fraction, as in "1023 B".
std::string BytesText(uint64_t bytes);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_BYTES_TEXT_H_
