// The owner of this job, for the labels of Prometheus: the batch system's number of the job, and the user. It
// comes from the environment, so it is the process's own claim, no proof. Pure; cannot fail.

#ifndef SPILLWAY_INTEGRATION_REPORT_JOB_IDENTITY_H_
#define SPILLWAY_INTEGRATION_REPORT_JOB_IDENTITY_H_

#include <sys/types.h>

#include <string>

#include "integration/settings/node_ranks.h"

namespace spillway::integration {

struct JobIdentity {
  std::string job;   // "4711", "4711_3" for a part of an array, a pod's name; empty: no batch system gives it
  std::string user;  // LOGNAME or USER, otherwise the number of the user
};

// Returns the identity. `variables` returns null for a variable that is not set. Slurm, PBS, LSF, Flux, OAR,
// Grid Engine and Kubernetes are known.
JobIdentity IdentityOf(const VariableSource& variables, uid_t user);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_REPORT_JOB_IDENTITY_H_
