#include "tests/stress/run_settings.h"

#include <random>

namespace spillway::stress {

RunSettings RunSettings::Draw(uint64_t seed, int operations) {
  std::mt19937_64 random(seed);
  const auto below = [&random](int limit) {
    return static_cast<int>(random() % static_cast<uint64_t>(limit));
  };
  RunSettings drawn;
  drawn.seed = seed;
  drawn.operations = operations;
  drawn.actors = 1 + below(3);
  drawn.directories = 1 + below(3);
  drawn.slots_per_directory = 12 + below(29);
  drawn.way = static_cast<Way>(below(3));
  drawn.slots_per_actor =
      static_cast<size_t>(drawn.directories * drawn.slots_per_directory / drawn.actors * (4 + below(8)) / 8);
  drawn.request_bytes = 64u << (10 + below(4));
  drawn.requests_in_flight = 4 << below(3);
  drawn.duplicate_rate = below(2) == 0 ? 0 : 0.02;
  switch (below(4)) {
    case 0: break;
    case 1: drawn.damage_rate = 0.01; break;
    default: drawn.ill = true; drawn.checksum = below(3) != 0;
  }
  if (drawn.ill || below(2) == 0) drawn.random_rate = 0.02 * below(8);
  drawn.encrypt = below(3) == 0;
  return drawn;
}

std::string RunSettings::Describe() const {
  constexpr const char* kWays[] = {"io_uring", "threads", "threads through the page cache"};
  return std::to_string(operations) + " operations, " + std::to_string(actors) + " actors, " +
         std::to_string(directories) + " directories of " + std::to_string(slots_per_directory) + " slots, " +
         kWays[static_cast<int>(way)] + (checksum ? "" : " without checksums") +
         (encrypt ? " encrypted" : "") + ", " + std::to_string(requests_in_flight) + " requests of " +
         std::to_string(request_bytes >> 10) + " KiB, faults " + std::to_string(random_rate) + ", twice " +
         std::to_string(duplicate_rate) + ", damage " + std::to_string(damage_rate) +
         (ill ? ", ill drives" : "");
}

}  // namespace spillway::stress
