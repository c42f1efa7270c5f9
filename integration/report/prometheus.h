// The engine's metrics as Prometheus reads them: the text format 0.0.4, for files that node_exporter takes
// up. The reporter's thread writes the file of SPILLWAY_PROMETHEUS with it. Pure; nothing fails.

#ifndef SPILLWAY_INTEGRATION_REPORT_PROMETHEUS_H_
#define SPILLWAY_INTEGRATION_REPORT_PROMETHEUS_H_

#include <string>

#include "integration/report/job_identity.h"
#include "integration/report/metrics.h"

namespace spillway::integration {

// The labels that tell the metrics of one process from those of others on the machine.
struct PrometheusLabels {
  int rank = 0;
  int pid = 0;
  JobIdentity identity = {};  // what is empty of it has no label
};

std::string PrometheusText(const Metrics& metrics, const PrometheusLabels& labels);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_REPORT_PROMETHEUS_H_
