// Driver functions: look-up of driver functions. Answers from the table of all public functions, never by
// dlsym on ourselves: a library that interposes the driver would be asked for our own names and call us for
// ever. Includes no cuda.h: the table needs only the addresses, and cuda.h would bring conflicting types for
// them.
#include <cstdint>
#include <cstring>

#include "integration/simcuda/driver/api/get_proc_address.h"

#define DRIVER_FUNCTION(symbol, name, version, form) extern "C" int symbol();
#include "allocator/driver/driver_functions.def"
#undef DRIVER_FUNCTION

namespace simcuda {
namespace {

enum RowForm { DEFAULT, PER_THREAD };

struct Row {
  const char* name;
  int version;  // 0: by symbol only
  RowForm form;
  int (*address)();
};

constexpr Row kRows[] = {
#define DRIVER_FUNCTION(symbol, name, version, form) {#name, version, form, &symbol},
#include "allocator/driver/driver_functions.def"
#undef DRIVER_FUNCTION
};

}  // namespace

LookUp FindDriverFunction(const char* name, int version, bool per_thread) {
  LookUp found;
  const Row* best[2] = {nullptr, nullptr};
  for (const Row& row : kRows) {
    if (row.version == 0 || std::strcmp(row.name, name) != 0) continue;
    found.name_known = true;
    if (row.version > version) continue;
    const Row*& candidate = best[row.form];
    if (candidate == nullptr || row.version > candidate->version) candidate = &row;
  }
  const Row* row = per_thread && best[PER_THREAD] != nullptr ? best[PER_THREAD] : best[DEFAULT];
  if (row != nullptr) found.address = reinterpret_cast<void*>(row->address);
  return found;
}

}  // namespace simcuda
