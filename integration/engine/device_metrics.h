// One device's entry in the reported metrics: the counts of its residency and its predictor, the forecast of
// an iteration's time, and with SPILLWAY=observe the cost of smaller budgets. The reporter's thread calls it,
// and any thread that asks for metrics through the C ABI. No call fails.

#ifndef SPILLWAY_INTEGRATION_ENGINE_DEVICE_METRICS_H_
#define SPILLWAY_INTEGRATION_ENGINE_DEVICE_METRICS_H_

#include "integration/engine/devices.h"
#include "integration/report/metrics.h"
#include "integration/settings/settings.h"

namespace spillway::integration {

// Takes the device's locks for a moment, one after the other: the parts are of slightly different times.
DeviceMetrics MetricsOf(const ServedDevice& served, const Settings& settings);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_DEVICE_METRICS_H_
