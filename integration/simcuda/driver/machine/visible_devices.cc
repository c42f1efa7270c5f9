// Reading CUDA_VISIBLE_DEVICES entry by entry.
#include "integration/simcuda/driver/machine/visible_devices.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "integration/simcuda/driver/machine/machine_memory.h"

namespace simcuda {
namespace {

constexpr int kNone = -1;

// Returns a UUID as nvidia-smi writes it: GPU-8-4-4-4-12 hexadecimal digits.
std::string UuidText(int number) {
  std::string text = "GPU-";
  const std::string bytes = DeviceUuid(number);
  for (size_t i = 0; i < bytes.size(); ++i) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned char>(bytes[i]));
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += digits;
  }
  return text;
}

// A beginning counts when it is that of one device alone.
int FindByUuid(const std::string& entry, int count) {
  int found = kNone;
  for (int number = 0; number < count; ++number) {
    if (UuidText(number).rfind(entry, 0) != 0) continue;
    if (found != kNone) return kNone;
    found = number;
  }
  return found;
}

int FindDeviceOf(const std::string& entry, int count) {
  if (entry.rfind("GPU-", 0) == 0) return FindByUuid(entry, count);
  char* end = nullptr;
  const long number = std::strtol(entry.c_str(), &end, 10);
  const bool is_number =
      end != entry.c_str() && (*end == '\0' || std::isspace(static_cast<unsigned char>(*end)));
  return is_number && number >= 0 && number < count ? static_cast<int>(number) : kNone;
}

}  // namespace

std::string DeviceUuid(int number) {
  return "simcuda" + MachineName() + std::string(1, static_cast<char>('0' + number));
}

std::vector<int> VisibleDevices(const char* list, int count) {
  std::vector<int> seen;
  if (list == nullptr) {
    for (int number = 0; number < count; ++number) seen.push_back(number);
    return seen;
  }
  std::stringstream entries(list);
  for (std::string entry; std::getline(entries, entry, ',');) {
    const int number = FindDeviceOf(entry, count);
    if (number == kNone) break;
    if (std::find(seen.begin(), seen.end(), number) != seen.end()) return {};
    seen.push_back(number);
  }
  return seen;
}

}  // namespace simcuda
