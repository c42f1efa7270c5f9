// Drives: the SSD as several drives of unequal rates: on which of them a copy is put, and what they can do together.
// Each copy lies on one drive and comes back from it.

#ifndef SPILLWAY_POLICY_SIMULATOR_DRIVES_H_
#define SPILLWAY_POLICY_SIMULATOR_DRIVES_H_

#include <cstddef>
#include <vector>

#include "policy/simulator/machine.h"

namespace spillway::policy {

// At least one.
std::vector<Drive> DrivesOf(const Machine& machine);

// Reading and writing take at least bytes read x per_byte_read + bytes written x per_byte_written seconds.
struct SharedLimit {
  double per_byte_read = 0;
  double per_byte_written = 0;
};

// Of drives whose reads and writes share a limit: what they read and write together obeys all of these, and whatever
// obeys all of these can be spread over them (as far as it may lie on any drive). One for drives whose rates are in the
// same proportion.
std::vector<SharedLimit> SharedLimits(const Machine& machine);

// What the drives write and read together when each gets as large a part of all bytes as makes them finish writing and
// reading at one time, as DriveLoads::Pick does it. The sums of the rates, where reading and writing are in one proportion
// on all of them; else less, since bytes are read where they were written.
Drive RatesTogether(const Machine& machine);

// What waits for each drive. Not thread-safe.
class DriveLoads {
 public:
  explicit DriveLoads(std::vector<Drive> drives);

  // The drive on which `bytes` more would be written and read back soonest, after all that waits for it; the first of
  // several such.
  size_t Pick(Bytes bytes) const;
  void AddWrite(size_t drive, Bytes bytes) { loads_[drive].to_write += bytes; }
  void RemoveWrite(size_t drive, Bytes bytes) { loads_[drive].to_write -= bytes; }
  // Lies on the drive, to be read later.
  void AddRead(size_t drive, Bytes bytes) { loads_[drive].to_read += bytes; }
  void RemoveRead(size_t drive, Bytes bytes) { loads_[drive].to_read -= bytes; }

 private:
  struct Load {
    Bytes to_write = 0, to_read = 0;
  };
  std::vector<Drive> drives_;
  std::vector<Load> loads_;
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_SIMULATOR_DRIVES_H_
