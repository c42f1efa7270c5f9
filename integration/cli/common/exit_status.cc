#include "integration/cli/common/exit_status.h"

#include <cstdio>
#include <string>

namespace spillway::integration {

int Refuse(const absl::Status& status) {
  std::fprintf(stderr, "spillway: %s\n", std::string(status.message()).c_str());
  return kWrongUse;
}

}  // namespace spillway::integration
