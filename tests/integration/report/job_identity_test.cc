#include "integration/report/job_identity.h"

#include <gtest/gtest.h>

#include <map>

namespace spillway::integration {
namespace {

JobIdentity Of(const std::map<std::string, std::string>& variables) {
  return IdentityOf(
      [&](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      1234);
}

TEST(JobIdentityTest, EachBatchSystemsNumber) {
  EXPECT_EQ(Of({{"SLURM_JOB_ID", "4711"}}).job, "4711");
  EXPECT_EQ(Of({{"SLURM_JOB_ID", "4714"}, {"SLURM_ARRAY_JOB_ID", "4711"}, {"SLURM_ARRAY_TASK_ID", "3"}}).job,
            "4711_3");
  EXPECT_EQ(Of({{"PBS_JOBID", "17.head"}}).job, "17.head");
  EXPECT_EQ(Of({{"LSB_JOBID", "17"}, {"LSB_JOBINDEX", "0"}}).job, "17");
  EXPECT_EQ(Of({{"LSB_JOBID", "17"}, {"LSB_JOBINDEX", "2"}}).job, "17_2");
  EXPECT_EQ(Of({{"FLUX_JOB_ID", "f23"}}).job, "f23");
  EXPECT_EQ(Of({{"OAR_JOB_ID", "5"}}).job, "5");
  EXPECT_EQ(Of({{"SGE_ROOT", "/sge"}, {"JOB_ID", "5"}, {"SGE_TASK_ID", "undefined"}}).job, "5");
  EXPECT_EQ(Of({{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}, {"HOSTNAME", "train-0"}}).job, "train-0");
}

TEST(JobIdentityTest, NamesThatAreAnybodysDoNotCountAlone) {
  EXPECT_EQ(Of({{"JOB_ID", "5"}, {"HOSTNAME", "n1"}}).job, "");
  EXPECT_EQ(Of({}).job, "");
  EXPECT_EQ(Of({{"SLURM_JOB_ID", ""}, {"PBS_JOBID", "17"}}).job, "17") << "empty is as if it were not set";
}

TEST(JobIdentityTest, TheUserByNameElseByNumber) {
  EXPECT_EQ(Of({{"LOGNAME", "ada"}, {"USER", "other"}}).user, "ada");
  EXPECT_EQ(Of({{"USER", "ada"}}).user, "ada");
  EXPECT_EQ(Of({{"LOGNAME", ""}}).user, "1234");
}

}  // namespace
}  // namespace spillway::integration
