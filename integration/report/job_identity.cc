#include "integration/report/job_identity.h"

#include "absl/strings/str_cat.h"

namespace spillway::integration {
namespace {

// The variables by which batch systems name a job, in order: the first one that is set counts.
struct BatchSystem {
  const char* job;             // the variable with the number
  const char* part = nullptr;  // the variable with an array's part, unless its value is `no_part`
  const char* no_part = "";
  const char* only_with = nullptr;  // anybody may set `job` unless this one is set, too
};

constexpr BatchSystem kSystems[] = {
    {.job = "SLURM_ARRAY_JOB_ID", .part = "SLURM_ARRAY_TASK_ID"},
    {.job = "SLURM_JOB_ID"},
    {.job = "PBS_JOBID"},
    {.job = "LSB_JOBID", .part = "LSB_JOBINDEX", .no_part = "0"},
    {.job = "FLUX_JOB_ID"},
    {.job = "OAR_JOB_ID"},
    {.job = "JOB_ID", .part = "SGE_TASK_ID", .no_part = "undefined", .only_with = "SGE_ROOT"},
    {.job = "HOSTNAME", .only_with = "KUBERNETES_SERVICE_HOST"},
};

}  // namespace

JobIdentity IdentityOf(const VariableSource& variables, uid_t user) {
  const auto value = [&](const char* name) {
    const char* const found = name == nullptr ? nullptr : variables(name);
    return std::string(found == nullptr ? "" : found);
  };
  JobIdentity identity;
  for (const BatchSystem& system : kSystems) {
    const std::string job = value(system.job), part = value(system.part);
    if (job.empty() || (system.only_with != nullptr && value(system.only_with).empty())) continue;
    identity.job = part.empty() || part == system.no_part ? job : absl::StrCat(job, "_", part);
    break;
  }
  identity.user = value("LOGNAME");
  if (identity.user.empty()) identity.user = value("USER");
  if (identity.user.empty()) identity.user = absl::StrCat(user);
  return identity;
}

}  // namespace spillway::integration
