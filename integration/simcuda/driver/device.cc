#include "integration/simcuda/driver/device.h"

namespace simcuda {

bool Device::Charge(uint64_t bytes) {
  uint64_t used = used_.load();
  do {
    if (bytes > capacity_ || used > capacity_ - bytes) return false;
  } while (!used_.compare_exchange_weak(used, used + bytes));
  uint64_t peak = peak_.load();
  while (peak < used + bytes && !peak_.compare_exchange_weak(peak, used + bytes)) {
  }
  return true;
}

}  // namespace simcuda
