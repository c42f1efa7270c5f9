#include "integration/report/power_meter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace spillway::integration {
namespace {

constexpr char kBusId[] = "0000:65:00.0";

class PowerMeterTest : public ::testing::Test {
 protected:
  PowerMeterTest() {
    char name[] = "/tmp/spillway_power_XXXXXX";
    folder_ = ::mkdtemp(name);
    energy_ = folder_ + "/millijoules";
    ::setenv("STUB_NVML_ENERGY", energy_.c_str(), 1);
  }
  ~PowerMeterTest() override { std::filesystem::remove_all(folder_); }

  static void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << text;
  }
  std::string Package(const std::string& name) const { return folder_ + "/sys/class/powercap/" + name; }
  void SetPackage(const std::string& name, uint64_t microjoules) const {
    Write(Package(name) + "/energy_uj", std::to_string(microjoules) + "\n");
    Write(Package(name) + "/max_energy_range_uj", "1000000\n");
  }
  // Without a GPU, on the folder's sysfs.
  PowerMeter Processors() const { return PowerMeter({"", "", folder_}); }
  PowerMeter Gpu(const std::string& bus_id = kBusId) const {
    return PowerMeter({bus_id, STUB_NVML, folder_});
  }

  std::string folder_;
  std::string energy_;
};

TEST_F(PowerMeterTest, IsAbsentWhereNothingCanBeRead) {
  PowerMeter meter({kBusId, folder_ + "/no-such-library.so", folder_});
  meter.Sample();
  meter.Sample();
  EXPECT_FALSE(meter.Used().has_value());
}

TEST_F(PowerMeterTest, TheGpusEnergySinceTheFirstLook) {
  Write(energy_, "5000");
  PowerMeter meter = Gpu();
  meter.Sample();
  EXPECT_FALSE(meter.Used().has_value()) << "one look says nothing";
  Write(energy_, "12500");
  meter.Sample();
  ASSERT_TRUE(meter.Used().has_value());
  EXPECT_EQ(meter.Used()->gpu_joules, 7.5);
  EXPECT_FALSE(meter.Used()->cpu_joules.has_value());
  EXPECT_EQ(meter.Used()->source, "nvml");
  std::filesystem::remove(energy_);  // from now on it does not answer
  meter.Sample();
  EXPECT_EQ(meter.Used()->gpu_joules, 7.5);
}

TEST_F(PowerMeterTest, AGpuThatNvmlDoesNotKnowOrCannotMeasureIsAbsent) {
  PowerMeter unknown = Gpu("0000:01:00.0");
  Write(energy_, "1");
  unknown.Sample();
  unknown.Sample();
  EXPECT_FALSE(unknown.Used().has_value());
  std::filesystem::remove(energy_);
  PowerMeter old = Gpu();
  old.Sample();
  old.Sample();
  EXPECT_FALSE(old.Used().has_value());
}

TEST_F(PowerMeterTest, PackagesAreAddedAndPartsOfThemAreNot) {
  SetPackage("intel-rapl:0", 100'000);
  SetPackage("intel-rapl:1", 500'000);
  SetPackage("intel-rapl:0:0", 0);
  SetPackage("dtpm", 0);
  PowerMeter meter = Processors();
  meter.Sample();
  SetPackage("intel-rapl:0", 300'000);
  SetPackage("intel-rapl:1", 600'000);
  SetPackage("intel-rapl:0:0", 900'000);
  SetPackage("dtpm", 900'000);
  meter.Sample();
  ASSERT_TRUE(meter.Used().has_value());
  EXPECT_DOUBLE_EQ(*meter.Used()->cpu_joules, 0.3);
  EXPECT_EQ(meter.Used()->source, "rapl");
}

TEST_F(PowerMeterTest, ACounterThatBeginsAnewGoesOn) {
  SetPackage("intel-rapl:0", 900'000);
  PowerMeter meter = Processors();
  meter.Sample();
  SetPackage("intel-rapl:0", 50'000);
  meter.Sample();
  EXPECT_DOUBLE_EQ(*meter.Used()->cpu_joules, 0.15);
  Write(Package("intel-rapl:0") + "/energy_uj", "no number");
  meter.Sample();
  EXPECT_DOUBLE_EQ(*meter.Used()->cpu_joules, 0.15);
}

TEST_F(PowerMeterTest, BothAreNamed) {
  SetPackage("intel-rapl:0", 0);
  Write(energy_, "0");
  PowerMeter meter = Gpu();
  meter.Sample();
  meter.Sample();
  EXPECT_EQ(meter.Used()->source, "nvml+rapl");
}

// As for users other than root, since 2020.
TEST_F(PowerMeterTest, CountersThatMayNotBeReadAreAbsent) {
  std::filesystem::create_directories(Package("intel-rapl:0") + "/energy_uj");
  Write(Package("intel-rapl:0") + "/max_energy_range_uj", "1000000");
  PowerMeter meter = Processors();
  meter.Sample();
  meter.Sample();
  EXPECT_FALSE(meter.Used().has_value());
}

}  // namespace
}  // namespace spillway::integration
