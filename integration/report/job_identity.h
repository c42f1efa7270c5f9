// Whose job this is, for the labels of Prometheus: the batch system's number of it, and the user. From the
// environment, so it is what the process says of itself, no proof. Pure; nothing fails.

#ifndef SPILLWAY_INTEGRATION_REPORT_JOB_IDENTITY_H_
#define SPILLWAY_INTEGRATION_REPORT_JOB_IDENTITY_H_

#include <sys/types.h>

#include <string>

#include "integration/settings/node_ranks.h"

namespace spillway::integration {

struct JobIdentity {
  std::string job;   // "4711", "4711_3" for a part of an array, a pod's name; empty: no batch system says
  std::string user;  // LOGNAME or USER, else the number of the user
};

// `variables`: null for one that is not set. Slurm, PBS, LSF, Flux, OAR, Grid Engine and Kubernetes are
// known.
JobIdentity IdentityOf(const VariableSource& variables, uid_t user);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_REPORT_JOB_IDENTITY_H_
