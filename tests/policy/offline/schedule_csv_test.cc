#include "policy/offline/schedule_csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "policy/simulator/simulator.h"
#include "tests/policy/workload_helpers.h"

namespace spillway::policy {
namespace {

TEST(ScheduleCsvTest, OneRowPerEvent) {
  ExecutionOptions options;
  options.record = true;
  const Workload workload = MountainWorkload(20 * kMilli);
  const std::string text =
      ScheduleCsv(*Execute(workload, FindLifetimes(workload), PieceMachine(150 * kMega, 100 * kMega),
                           HalfAway(PlanTier::kHost), options));
  EXPECT_THAT(text, testing::HasSubstr("kind,iteration,id,first,last,src,dst,start_us,end_us\n"));
  EXPECT_THAT(text, testing::HasSubstr("kernel,0,1,,,,,20000.000,40000.000\n"));
  EXPECT_THAT(text, testing::HasSubstr("move,0,0,0,5,gpu,host,20000.000,70000.000\n"));
  EXPECT_THAT(text, testing::HasSubstr("drop,0,0,0,5,gpu,,70000.000,\n"));
}

}  // namespace
}  // namespace spillway::policy
