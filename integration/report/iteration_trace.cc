#include "integration/report/iteration_trace.h"

#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "integration/report/atomic_file.h"
#include "integration/report/kernel_name.h"
#include "io/os/errno.h"
#include "policy/model/workload_file.h"

namespace spillway::integration {
namespace {

// Replaces commas and line ends, which end a field and a line in the CSV form.
std::string PlainName(std::string name) {
  for (char& c : name) {
    if (c == ',') c = ';';
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return name;
}

void AddNames(const Predictor::Followed& iteration, const NameOfLaunch& name, policy::Workload* workload) {
  std::unordered_map<uint64_t, std::string> names;
  for (size_t k = 0; k < workload->kernels.size(); ++k) {
    const uint64_t tag = iteration.launches.at(iteration.launches.begin() + k).tag;
    const auto [it, is_new] = names.try_emplace(tag);
    if (is_new) it->second = ShortKernelName(name(tag));
    workload->kernels[k].name = it->second;
  }
}

std::string WriteOne(const std::string& path, DeviceIteration* device, const NameOfLaunch& name) {
  const std::string head = absl::StrCat("trace: GPU ", device->device, ": ");
  if (!device->iteration) return absl::StrCat(head, "no file, since no iteration repeated");
  const policy::Workload& workload = device->iteration->recorded.workload;
  const absl::StatusOr<std::string> file = EncodeIteration(&*device->iteration, name);
  const absl::Status status =
      file.ok() ? WriteFileAtomically(path, *file, Readers::kEveryone) : file.status();
  if (!status.ok()) return absl::StrCat(head, "no file: ", std::string(status.message()));
  return absl::StrFormat(
      "%s%s has an iteration of %d launches (%d of them of measured kinds, by %d samples) on %d blocks, %.1f "
      "ms on the GPU; see `spillway simulate --trace`",
      head, path, workload.kernels.size(), device->iteration->recorded.measured, device->iteration->samples,
      workload.tensors.size(), static_cast<double>(workload.IdealTime()) / 1e6);
}

}  // namespace

// The file is checked, so that none is left behind which cannot be read again.
absl::StatusOr<std::string> EncodeIteration(Predictor::Followed* iteration, const NameOfLaunch& name) {
  AddNames(*iteration, name, &iteration->recorded.workload);
  policy::Workload workload = iteration->recorded.workload;
  for (policy::WorkloadKernel& kernel : workload.kernels) kernel.name = PlainName(std::move(kernel.name));
  SPILLWAY_RETURN_IF_ERROR(policy::CheckWorkload(workload));
  return policy::EncodeWorkload(workload);
}

std::vector<std::string> WriteIterationTraces(const std::string& path, std::vector<DeviceIteration> devices,
                                              const NameOfLaunch& name) {
  if (devices.empty()) return {"trace: no file, since nothing was ever allocated on a GPU through Spillway"};
  std::vector<std::string> lines;
  bool first = true;
  for (DeviceIteration& device : devices) {
    lines.push_back(WriteOne(first ? path : absl::StrCat(path, ".gpu", device.device), &device, name));
    if (device.iteration) first = false;
  }
  return lines;
}

}  // namespace spillway::integration
