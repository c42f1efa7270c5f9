#include "integration/engine/job_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>

#include "integration/engine/profile_file.h"
#include "integration/hooks/hook_rows.h"
#include "tests/integration/hooks/fake_residency.h"
#include "tests/integration/hooks/synthetic_handles.h"
#include "tests/integration/report/metrics_helpers.h"

namespace spillway::integration {
namespace {

using policy::FormFacts;
using policy::Writes;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

const ProfileKey kKey = {"2.11.0+cu130", "13.0", "a device"};

// Kernels by name.
class NamedFunctions : public FunctionQueries {
 public:
  std::map<const void*, std::string> names;
  Answer ParamSize(void*, HandleKind, size_t, size_t*) const override { return Answer::kNone; }
  Answer Name(void* handle, HandleKind, std::string* name) const override {
    *name = names.at(handle);
    return name->empty() ? Answer::kNone : Answer::kOk;
  }
  const void* Owner(void*, HandleKind) const override { return nullptr; }
};

// Keeps facts as a device's does, without samples: Find is what they would have found.
class LearningResidency : public FakeResidency {
 public:
  void GuessWrites(const std::vector<FormFacts>& guesses) override {
    for (const FormFacts& guess : guesses) facts.Guess(guess);
  }
  std::shared_ptr<const policy::WriteFacts> LearntWrites() const override {
    return std::make_shared<const policy::WriteFacts>(facts);
  }
  policy::WriteFacts facts;
};

class JobProfileTest : public ReportFileTest {
 protected:
  JobProfileTest() : path_(folder_ + "/profile") {
    auto residency = std::make_unique<LearningResidency>();
    residency_ = residency.get();
    devices_.Keep({0, 0, nullptr, std::move(residency)});
    devices_.Publish(0);
  }
  uint64_t Launch(int handle, const std::string& name) {
    queries_.names[Handle(handle)] = name;
    functions_.RecordFunction(static_cast<CUfunction>(Handle(handle)), nullptr);
    return functions_.Find(Handle(handle))->tag;
  }
  // What the next run of the same user begins with.
  std::shared_ptr<const policy::WriteFacts> NextRun(const ProfileKey& key = kKey) {
    Devices devices;
    JobProfile profile(path_, &devices, nullptr);
    profile.Begin(key, {"/drive"});
    rates_ = profile.rates();
    LearningResidency residency;
    return profile.Writes(0, &residency);
  }

  const std::string path_;
  NamedFunctions queries_;
  FunctionRegistry functions_{&queries_};
  Devices devices_;
  LearningResidency* residency_ = nullptr;
  JobProfile profile_{path_, &devices_, &functions_};
  KnownRates rates_;
};

TEST_F(JobProfileTest, TheNextRunKnowsWhatThisOneHasLearnt) {
  profile_.Begin(kKey, {"/drive"});
  const policy::LaunchForm form{Launch(1, "_Z4copyPfPKf"), 2};
  residency_->facts.Record(form, 0, true);
  for (int look = 0; look < 3; ++look) residency_->facts.Record(form, 1, false);
  residency_->stats.host_in_rate = 50e9;
  residency_->stats.disk_out_rate = 3e9;
  profile_.Keep(0);
  EXPECT_FALSE(std::filesystem::exists(path_)) << "nothing was spilled";
  profile_.Keep(1);
  const auto next = NextRun();
  EXPECT_EQ(next->Of(form, 0), Writes::kYes);
  EXPECT_EQ(next->Of(form, 1), Writes::kNo);
  EXPECT_FALSE(next->Settled(form, 1)) << "it is a guess";
  EXPECT_EQ(rates_.host_in, 50e9);
  EXPECT_EQ(rates_.disk_out, 3e9);
  EXPECT_EQ(rates_.disk_in, 0);
}

// A rate is measured anew at each report, and wavers.
TEST_F(JobProfileTest, ARateThatWaversIsNoNews) {
  profile_.Begin(kKey, {});
  const auto written = [this](double rate) {
    residency_->stats.host_in_rate = rate;
    std::filesystem::remove(path_);
    profile_.Keep(1);
    return std::filesystem::exists(path_);
  };
  EXPECT_TRUE(written(50e9));
  for (const double rate : {50.1e9, 49e9, 54e9, 46e9}) EXPECT_FALSE(written(rate)) << rate;
  EXPECT_TRUE(written(56e9)) << "another rate";
  EXPECT_FALSE(written(52e9)) << "a tenth of the new one";
  EXPECT_TRUE(written(40e9));
  NextRun();
  EXPECT_EQ(rates_.host_in, 40e9);
}

TEST_F(JobProfileTest, RatesAreOfTheSameDirectories) {
  profile_.Begin(kKey, {"/other/drive"});
  residency_->stats.host_in_rate = 50e9;
  residency_->stats.disk_out_rate = 3e9;
  profile_.Keep(1);
  NextRun();
  EXPECT_EQ(rates_.host_in, 50e9);
  EXPECT_EQ(rates_.disk_out, 0);
}

io::DirectoryStats At(const std::string& path, double write, double read) {
  io::DirectoryStats stats;
  stats.path = path;
  stats.speed = {.write = write, .read = read};
  return stats;
}

TEST_F(JobProfileTest, ADirectoryKeepsItsSpeedOverRunsWithoutIt) {
  const auto speeds = [this] {
    const auto read = ReadProfile(path_);
    std::map<uint64_t, io::DriveSpeed> found;
    for (const DirectorySpeed& one : read->directories) found[one.directory] = one.speed;
    return found;
  };
  const uint64_t slow = DrivesNumber({"/slow"}), fast = DrivesNumber({"/fast"});
  profile_.Begin(kKey, {});
  profile_.Keep(1, std::vector{At("/slow", 1e8, 0), At("/fast", 3e8, 4e8), At("/unused", 0, 0)});
  EXPECT_EQ(speeds(), (std::map<uint64_t, io::DriveSpeed>{{slow, {1e8, 0}}, {fast, {3e8, 4e8}}}));
  JobProfile next(path_, &devices_, &functions_);
  next.Begin(kKey, {});
  next.Keep(1, std::vector{At("/fast", 3.1e8, 2e8), At("/new", 5e9, 6e9)});
  EXPECT_EQ(speeds(), (std::map<uint64_t, io::DriveSpeed>{
                          {slow, {1e8, 0}}, {fast, {3e8, 2e8}}, {DrivesNumber({"/new"}), {5e9, 6e9}}}))
      << "3.1e8 is no news";
  JobProfile third(path_, &devices_, &functions_);
  third.Begin(kKey, {});
  third.Keep(1, std::vector{At("/slow", 2e8, 0)});
  const std::vector<DirectorySpeed> found = ReadProfile(path_)->directories;
  EXPECT_EQ(found.front().directory, slow) << "of this run";
  EXPECT_EQ(found.back().directory, fast) << "not used for longest: the first to go when the file is full";
}

TEST_F(JobProfileTest, TheStoreOfTheNextRunBeginsWithTheSpeeds) {
  const std::string slow = folder_ + "/slow", fast = folder_ + "/fast";
  profile_.Begin(kKey, {});
  profile_.Keep(1, std::vector{At(fast, 3e8, 4e8), At(slow, 1e8, 2e8)});
  for (const std::string& path : {slow, fast}) std::filesystem::create_directory(path);
  io::SpillStoreOptions options;
  options.directories = {{slow}, {fast}, {folder_}};
  options.allow_any_file_system = true;
  const auto store = io::SpillStore::Create(options);
  ASSERT_TRUE(store.ok()) << store.status();
  JobProfile next(path_, &devices_, &functions_);
  next.Begin(kKey, {slow, fast});
  next.GuessSpeeds(store->get());
  const auto directories = (*store)->stats().directories;
  EXPECT_EQ(directories[0].speed, (io::DriveSpeed{1e8, 2e8}));
  EXPECT_EQ(directories[1].speed, (io::DriveSpeed{3e8, 4e8}));
  EXPECT_EQ(directories[2].speed, io::DriveSpeed()) << "nobody has used it";
}

// What has no name is another thing in the next run.
TEST_F(JobProfileTest, HandlesAndGraphsAreNotKept) {
  profile_.Begin(kKey, {});
  const uint64_t graphs = RowTraits<Row::cuGraphLaunch>::kInfo.tag;
  const uint64_t copy = RowTraits<Row::cuMemcpyDtoDAsync_v2>::kInfo.tag;
  for (const uint64_t tag : {Launch(1, ""), graphs, graphs ^ 77, uint64_t{123}, copy})
    residency_->facts.Record({tag, 1}, 0, true);
  profile_.Keep(1);
  EXPECT_THAT(ReadProfile(path_)->writes, UnorderedElementsAre(FormFacts{{copy, 1}, 0, 1}));
}

TEST_F(JobProfileTest, KernelsOfPyTorchsAreKnownOnceTheyAreLaunched) {
  profile_.Begin(kKey, {});
  EXPECT_EQ(profile_.Writes(0, residency_)->size(), 0u);
  const uint64_t tag = Launch(1, "_ZN2at6native13reduce_kernelILi512EEEvT_");
  EXPECT_EQ(profile_.Writes(0, residency_)->Of({tag, 2}, 0), Writes::kNo);
  const uint64_t later = Launch(2, "_ZN2at6native29vectorized_elementwise_kernelILi4EEEvT_");
  EXPECT_EQ(profile_.Writes(0, residency_)->Of({later, 2}, 1), Writes::kNo);
  profile_.Keep(1);
  EXPECT_THAT(ReadProfile(path_)->writes, IsEmpty()) << "nobody has looked";
}

TEST_F(JobProfileTest, WhatOneRunKnewIsHandedOn) {
  ASSERT_TRUE(WriteProfile(path_, ProfileText({kKey, {}, {}, {{{5, 2}, 0b11, 0}, {{6, 2}, 0b1, 0}}})).ok());
  profile_.Begin(kKey, {});
  profile_.Writes(0, residency_);
  const policy::LaunchForm form{Launch(1, "_Z5otherPf"), 1};
  residency_->facts.Record(form, 0, true);
  profile_.Keep(1);
  const auto writes = ReadProfile(path_)->writes;
  ASSERT_EQ(writes.size(), 3u);
  EXPECT_EQ(writes[0].form, form) << "the latest first";
}

TEST_F(JobProfileTest, AnotherKeyIsNotUsedAndReplaced) {
  ASSERT_TRUE(WriteProfile(path_, ProfileText({kKey, {1e9, 1e9}, {}, {{{5, 2}, 0b11, 0}}})).ok());
  for (const ProfileKey& other :
       {ProfileKey{"2.12.0", "13.0", "a device"}, ProfileKey{"2.11.0+cu130", "13.1", "a device"},
        ProfileKey{"2.11.0+cu130", "13.0", "another"}}) {
    EXPECT_EQ(NextRun(other)->size(), 0u);
    EXPECT_EQ(rates_.host_in, 0);
  }
  const ProfileKey new_driver{"2.11.0+cu130", "13.1", "a device"};
  profile_.Begin(new_driver, {});
  residency_->stats.host_in_rate = 2e9;
  profile_.Keep(1);
  EXPECT_EQ(ReadProfile(path_)->key, new_driver);
  EXPECT_THAT(ReadProfile(path_)->writes, IsEmpty());
}

TEST_F(JobProfileTest, ADamagedProfileIsALineAndIsMadeAnew) {
  std::ofstream(path_) << "spillway-profile 2\nwhat is this";
  ASSERT_EQ(::chmod(path_.c_str(), 0600), 0);
  ::testing::internal::CaptureStderr();
  profile_.Begin(kKey, {});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("the profile is damaged and ignored"), HasSubstr(path_),
                    HasSubstr("SPILLWAY_PROFILE")));
  EXPECT_EQ(profile_.Writes(0, residency_)->size(), 0u);
  residency_->stats.host_in_rate = 2e9;
  profile_.Keep(1);
  EXPECT_TRUE(ReadProfile(path_).ok());
}

TEST_F(JobProfileTest, APathThatCannotBeWrittenIsALineOnceWhereTheUserHasNamedIt) {
  JobProfile profile("/proc/self/no/profile", &devices_, nullptr);
  profile.Begin(kKey, {});
  ::testing::internal::CaptureStderr();
  profile.Keep(1);
  residency_->stats.host_in_rate = 2e9;
  profile.Keep(1);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(
      said,
      HasSubstr("SPILLWAY_PROFILE: the facts of this run are not kept for the next: /proc/self/no/profile"));
  EXPECT_EQ(said.find("SPILLWAY_PROFILE"), said.rfind("SPILLWAY_PROFILE")) << said;
}

TEST_F(JobProfileTest, OffIsNoFile) {
  JobProfile profile("", &devices_, &functions_);
  profile.Begin(kKey, {});
  residency_->stats.host_in_rate = 2e9;
  profile.Keep(1);
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  const uint64_t tag = Launch(1, "_ZN2at6native13reduce_kernelILi512EEEvT_");
  EXPECT_EQ(profile.Writes(0, residency_)->Of({tag, 2}, 0), Writes::kNo)
      << "what is shipped is known all the same";
}

}  // namespace
}  // namespace spillway::integration
