#include "integration/settings/node_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace spillway::integration {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Variables = std::map<std::string, std::string>;

NodeRanks Read(const Variables& variables, std::vector<std::string>* warnings) {
  return ReadNodeRanks(
      [&](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      warnings);
}

struct Row {
  const char* what;
  Variables variables;
  int rank;
  int size;
  const char* launcher;
};

const Row kRows[] = {
    {"nothing", {}, 0, 0, ""},
    {"torchrun", {{"LOCAL_RANK", "3"}, {"LOCAL_WORLD_SIZE", "8"}}, 3, 8, "torchrun"},
    {"torchrun in a step of one task, as on Slurm",
     {{"LOCAL_RANK", "3"},
      {"LOCAL_WORLD_SIZE", "8"},
      {"SLURM_STEP_ID", "0"},
      {"SLURM_LOCALID", "0"},
      {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"}},
     3,
     8,
     "torchrun"},
    {"one process, which may spawn", {{"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}}, 0, 0, "torchrun"},
    {"Lightning's launcher: the number is the world's",
     {{"LOCAL_RANK", "2"}, {"NODE_RANK", "0"}, {"WORLD_SIZE", "16"}, {"MASTER_PORT", "4711"}},
     2,
     0,
     "LOCAL_RANK"},
    {"Accelerate's notebook_launcher",
     {{"LOCAL_RANK", "1"}, {"FORK_LAUNCHED", "1"}, {"NPROC", "4"}},
     1,
     4,
     "Accelerate's notebook_launcher"},
    {"NPROC is somebody else's", {{"LOCAL_RANK", "1"}, {"NPROC", "64"}}, 1, 0, "LOCAL_RANK"},
    {"a script that says it is not distributed", {{"LOCAL_RANK", "-1"}}, 0, 0, ""},
    {"a rank that was copied from Slurm",
     {{"LOCAL_RANK", "2"},
      {"SLURM_STEP_ID", "0"},
      {"SLURM_LOCALID", "2"},
      {"SLURM_NODEID", "0"},
      {"SLURM_STEP_TASKS_PER_NODE", "4"}},
     2,
     4,
     "Slurm"},
    {"a rank that was copied from OpenMPI",
     {{"LOCAL_RANK", "5"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "5"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "6"}},
     5,
     6,
     "OpenMPI"},
    {"OpenMPI, whose daemons are a step of one task",
     {{"OMPI_COMM_WORLD_LOCAL_RANK", "5"},
      {"OMPI_COMM_WORLD_LOCAL_SIZE", "8"},
      {"SLURM_STEP_ID", "0"},
      {"SLURM_LOCALID", "0"},
      {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"}},
     5,
     8,
     "OpenMPI"},
    {"MPICH and Intel MPI",
     {{"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}, {"PMI_RANK", "9"}},
     1,
     2,
     "MPICH"},
    {"MVAPICH", {{"MV2_COMM_WORLD_LOCAL_RANK", "1"}, {"MV2_COMM_WORLD_LOCAL_SIZE", "2"}}, 1, 2, "MVAPICH"},
    {"PMI", {{"PMI_LOCAL_RANK", "7"}, {"PMI_LOCAL_SIZE", "8"}, {"PMI_RANK", "15"}}, 7, 8, "PMI"},
    {"PALS", {{"PALS_LOCAL_RANKID", "7"}, {"PALS_LOCAL_SIZE", "8"}}, 7, 8, "PALS"},
    {"PMI that names no node", {{"PMI_RANK", "9"}, {"PMI_SIZE", "16"}}, 0, 0, ""},
    {"PMIx that names no node", {{"PMIX_RANK", "9"}, {"PMIX_NAMESPACE", "job"}}, 0, 0, ""},
    {"srun, the same on each node",
     {{"SLURM_STEP_ID", "1"},
      {"SLURM_LOCALID", "7"},
      {"SLURM_NODEID", "1"},
      {"SLURM_STEP_TASKS_PER_NODE", "8(x2)"}},
     7,
     8,
     "Slurm"},
    {"srun, the last node has fewer",
     {{"SLURM_STEPID", "1"},
      {"SLURM_LOCALID", "1"},
      {"SLURM_NODEID", "2"},
      {"SLURM_STEP_TASKS_PER_NODE", "4(x2),3"}},
     1,
     3,
     "Slurm"},
    {"srun, an older one",
     {{"SLURM_STEPID", "1"}, {"SLURM_LOCALID", "1"}, {"SLURM_NTASKS_PER_NODE", "4"}},
     1,
     4,
     "Slurm"},
    {"a batch script without srun: these are the allocation's",
     {{"SLURM_LOCALID", "0"}, {"SLURM_NTASKS_PER_NODE", "8"}, {"SLURM_TASKS_PER_NODE", "8"}},
     0,
     0,
     ""},
    {"more than a node has",
     {{"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2147483647"}},
     1,
     kMaxRanks,
     "torchrun"},
    {"empty is not set", {{"LOCAL_RANK", ""}, {"LOCAL_WORLD_SIZE", ""}}, 0, 0, ""},
};

TEST(NodeRanksTest, EachLauncherIsUnderstood) {
  for (const Row& row : kRows) {
    std::vector<std::string> warnings;
    const NodeRanks ranks = Read(row.variables, &warnings);
    EXPECT_EQ(ranks.rank, row.rank) << row.what;
    EXPECT_EQ(ranks.size, row.size) << row.what;
    EXPECT_EQ(ranks.launcher, row.launcher) << row.what;
    EXPECT_THAT(warnings, IsEmpty()) << row.what;
  }
}

struct WrongRow {
  const char* what;
  Variables variables;
  int rank;
  int size;
  const char* sentence;
};

const WrongRow kWrong[] = {
    {"no number", {{"LOCAL_RANK", "two"}, {"LOCAL_WORLD_SIZE", "4"}}, 0, 4, "LOCAL_RANK=two is left out"},
    {"a number and more",
     {{"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4 "}, {"NODE_RANK", "0"}},
     1,
     4,
     nullptr},
    {"no ranks", {{"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "0"}}, 0, 0, "LOCAL_WORLD_SIZE=0 is left out"},
    {"beyond what a number holds", {{"LOCAL_RANK", "99999999999999999999"}}, 0, 0, "LOCAL_RANK=9999"},
    {"a rank that cannot be",
     {{"LOCAL_RANK", "4"}, {"LOCAL_WORLD_SIZE", "4"}},
     4,
     0,
     "LOCAL_RANK=4 beside LOCAL_WORLD_SIZE=4 is left out"},
    {"the same of MPI",
     {{"OMPI_COMM_WORLD_LOCAL_RANK", "9"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}},
     9,
     0,
     "OMPI_COMM_WORLD_LOCAL_RANK=9 beside OMPI_COMM_WORLD_LOCAL_SIZE=2"},
    {"a list that is none",
     {{"SLURM_STEP_ID", "0"}, {"SLURM_LOCALID", "1"}, {"SLURM_STEP_TASKS_PER_NODE", "4(y2)"}},
     1,
     0,
     "SLURM_STEP_TASKS_PER_NODE=4(y2) is left out"},
    {"a bracket that is not closed",
     {{"SLURM_STEP_ID", "0"}, {"SLURM_LOCALID", "1"}, {"SLURM_STEP_TASKS_PER_NODE", "4(x2"}},
     1,
     0,
     "SLURM_STEP_TASKS_PER_NODE=4(x2 is left out"},
    {"a list that is too short",
     {{"SLURM_STEP_ID", "0"},
      {"SLURM_LOCALID", "1"},
      {"SLURM_NODEID", "2"},
      {"SLURM_STEP_TASKS_PER_NODE", "4(x2)"},
      {"SLURM_NTASKS_PER_NODE", "4"}},
     1,
     4,
     "with an entry for SLURM_NODEID"},
    {"a Slurm rank that cannot be",
     {{"SLURM_STEP_ID", "0"}, {"SLURM_LOCALID", "4"}, {"SLURM_STEP_TASKS_PER_NODE", "4"}},
     4,
     0,
     "SLURM_LOCALID=4 beside SLURM_STEP_TASKS_PER_NODE=4"},
    {"no rank on Slurm", {{"SLURM_STEP_ID", "0"}, {"SLURM_LOCALID", "x"}}, 0, 0, "SLURM_LOCALID=x"},
};

TEST(NodeRanksTest, WhatCannotBeIsLeftOutInWords) {
  for (const WrongRow& row : kWrong) {
    std::vector<std::string> warnings;
    const NodeRanks ranks = Read(row.variables, &warnings);
    EXPECT_EQ(ranks.rank, row.rank) << row.what;
    EXPECT_EQ(ranks.size, row.size) << row.what;
    if (row.sentence == nullptr) {
      EXPECT_THAT(warnings, IsEmpty()) << row.what;
    } else {
      EXPECT_THAT(warnings, ElementsAre(HasSubstr(row.sentence))) << row.what;
    }
  }
}

TEST(NodeRanksTest, JobsOfOneNodeAreToldApart) {
  std::vector<std::string> warnings;
  const auto job = [&](const Variables& variables) { return Read(variables, &warnings).job; };
  EXPECT_EQ(job({}), "");
  EXPECT_NE(job({{"MASTER_PORT", "29500"}}), job({{"MASTER_PORT", "29501"}}));
  EXPECT_NE(job({{"SLURM_JOB_ID", "7"}}), job({{"SLURM_JOB_ID", "8"}}));
}

}  // namespace
}  // namespace spillway::integration
