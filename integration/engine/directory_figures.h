// What the metrics and the summary say of one spill directory. MetricsJson and Summary call it for each. It
// reads a copy of the store's statistics, on any thread; nothing fails.

#ifndef SPILLWAY_INTEGRATION_ENGINE_DIRECTORY_FIGURES_H_
#define SPILLWAY_INTEGRATION_ENGINE_DIRECTORY_FIGURES_H_

#include <nlohmann/json.hpp>
#include <string>

#include "io/spill_store.h"

namespace spillway::integration {

// What it did, and how its drive does: the keys of `directories` in docs/metrics.md.
nlohmann::ordered_json DirectoryJson(const io::DirectoryStats& directory);

// "; /nvme0: failed transfers: 3, closures: 2, closed now: it does not answer"; "" for a directory that had no
// trouble.
std::string DirectoryText(const io::DirectoryStats& directory);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_DIRECTORY_FIGURES_H_
