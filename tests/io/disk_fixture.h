// Tests of spill stores on small disks of their own: a file system that holds nothing else, options that
// leave none of it free.

#ifndef SPILLWAY_TESTS_IO_DISK_FIXTURE_H_
#define SPILLWAY_TESTS_IO_DISK_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "io/store/spill_store.h"
#include "tests/fakes/faulty_engine.h"
#include "tests/io/loop_mount.h"
#include "tests/io/store_helpers.h"
#include "tests/sizes.h"

namespace spillway::io {

inline SpillStoreOptions DiskOptions(const std::string& path) {
  SpillStoreOptions options = SmallOptions(path);
  options.disk_reserve_bytes = 1;  // the file system itself is the limit
  options.growth_bytes = kGiB;
  return options;
}

// All requests pass an engine that fails by this plan.
inline SpillStoreOptions FaultyOptions(const std::string& path, const Fault& fault) {
  SpillStoreOptions options = SmallOptions(path);
  options.wrap_engine = [fault](std::unique_ptr<IoEngine> inner, size_t) {
    FaultPlan plan;
    plan.faults = {fault};
    return MakeFaultyEngine(std::move(inner), plan);
  };
  return options;
}

class DiskTest : public ::testing::Test {
 protected:
  // Skips where it cannot be mounted.
  void Mount(const LoopDisk& disk) {
    mount_ = std::make_unique<LoopMount>(disk);
    if (!mount_->mounted()) GTEST_SKIP() << mount_->problem();
  }
  void Mount(int mebibytes, const std::string& features = "") {
    Mount(LoopDisk{.mebibytes = mebibytes, .features = features});
  }
  const std::string& path() const { return mount_->path(); }

  std::unique_ptr<LoopMount> mount_;
};

#define MOUNT_OR_SKIP(...) \
  Mount(__VA_ARGS__);      \
  if (IsSkipped()) return

}  // namespace spillway::io

#endif  // SPILLWAY_TESTS_IO_DISK_FIXTURE_H_
