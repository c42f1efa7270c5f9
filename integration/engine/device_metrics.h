// One device's entry in the figures that are reported: what its residency and its predictor count, what an
// iteration is forecast to take, and with SPILLWAY=observe what smaller budgets would cost. Whoever collects
// figures calls it (the reporter's thread, and who asks for them through the C ABI): any thread; nothing
// fails.

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
