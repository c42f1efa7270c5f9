#include "integration/simcuda/driver/machine/device_rights.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdio>

#include "integration/simcuda/driver/core/driver_api.h"
#include "integration/simcuda/driver/core/settings.h"
#include "integration/simcuda/driver/simcuda.h"

namespace simcuda {
namespace {

constexpr int kNoKey = -1;
constexpr int kEverybodysKey = 0;
constexpr int kAllRights = 0;

// Written once, before there is device memory.
std::atomic<int> g_key{kNoKey};

int Key() { return g_key.load(std::memory_order_relaxed); }

bool Protect(uint64_t address, uint64_t size, int protection, int key) {
  void* const pages = reinterpret_cast<void*>(address);
  // A kernel without keys does not even know the default key.
  return (Key() == kNoKey ? mprotect(pages, size, protection)
                          : pkey_mprotect(pages, size, protection, key)) == 0;
}

}  // namespace

bool TakeDeviceKey() {
  const ProtectionKeys wanted = GetSettings().protection_keys_now();
  if (wanted == ProtectionKeys::kOff) return true;
  // Other threads have no right to a key that nobody has had before.
  const int key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
  if (key >= 0) g_key.store(key);
  if (key >= 0 || wanted == ProtectionKeys::kTry) return true;
  std::fprintf(
      stderr,
      "simcuda: SIMCUDA_PROTECTION_KEYS=on: there is no memory protection key (ospke in /proc/cpuinfo says "
      "whether a machine has them); it also takes off or try\n");
  return false;
}

bool IsDeviceMemoryClosed() { return Key() != kNoKey; }

bool OpenPages(uint64_t address, uint64_t size, Touch touch) {
  return Protect(address, size, PROT_READ | PROT_WRITE, touch == Touch::kDevice ? Key() : kEverybodysKey);
}

bool ClosePages(uint64_t address, uint64_t size) {
  return Protect(address, size, PROT_NONE, kEverybodysKey);  // else the key would move with the pages
}

DeviceRights::DeviceRights() {
  if (Key() == kNoKey) return;
  before_ = pkey_get(Key());
  pkey_set(Key(), kAllRights);
}

DeviceRights::~DeviceRights() {
  if (Key() != kNoKey) pkey_set(Key(), static_cast<unsigned int>(before_));
}

}  // namespace simcuda

SIMCUDA_API int simcuda_is_memory_closed(void) { return simcuda::IsDeviceMemoryClosed() ? 1 : 0; }
