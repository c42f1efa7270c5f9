// The compact binary form of a Workload (SPILLWAY_TRACE, `spillway simulate --trace`): a magic, a version,
// then numbers of variable length and a checksum. Bytes in, bytes out; the caller reads and writes the file.
// Thread-safe. Bytes that it has not written itself are refused, with the offset.

#ifndef SPILLWAY_POLICY_MODEL_WORKLOAD_FILE_H_
#define SPILLWAY_POLICY_MODEL_WORKLOAD_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "policy/model/workload.h"

namespace spillway::policy {

std::string EncodeWorkload(const Workload& workload);

// Returns InvalidArgument, with the offset and what is wrong there, for anything that EncodeWorkload has not
// written: bytes of another form, cut, longer or damaged ones, or a workload that CheckWorkload does not
// accept.
absl::StatusOr<Workload> DecodeWorkload(absl::string_view bytes);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_MODEL_WORKLOAD_FILE_H_
