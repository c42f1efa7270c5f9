// A number of bytes as text, for lines of the log, the summary and `spillway doctor`. Any thread.

#ifndef SPILLWAY_INTEGRATION_ENGINE_BYTES_TEXT_H_
#define SPILLWAY_INTEGRATION_ENGINE_BYTES_TEXT_H_

#include <cstdint>
#include <string>

namespace spillway::integration {

// "1.50 GiB"; whole bytes below 1 KiB.
std::string BytesText(uint64_t bytes);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_BYTES_TEXT_H_
