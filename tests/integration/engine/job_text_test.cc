#include "integration/engine/job_text.h"

#include <gtest/gtest.h>

#include "tests/sizes.h"

namespace spillway::integration {
namespace {

TEST(ServedLineTest, SaysWhatServesTheJob) {
  ServedJob job;
  job.framework = "PyTorch 2.11";
  job.memory = MemoryPartsOf({2 * kGiB, 0}, 8 * kGiB);
  job.host_bytes = kGiB;
  job.disk = {"/nvme0", "/nvme1"};
  const std::string head = std::string("Spillway ") + SPILLWAY_VERSION_TEXT;
  EXPECT_EQ(
      ServedLine(job),
      head +
          " serves PyTorch 2.11 on GPU 0 (1 visible): budget 2.00 GiB of 8.00 GiB (1.96 GiB "
          "for blocks, 42.00 MiB for other memory of the process), host memory up to 1.00 GiB, disk /nvme0, "
          "/nvme1");
  job.disk.clear();
  job.host_bytes = 0;
  job.framework = "";
  job.rank = 3;
  job.ranks = 8;
  job.memory = MemoryPartsOf({168 * kMiB, 32 * kMiB}, 200 * kMiB);
  job.shared = true;
  EXPECT_EQ(ServedLine(job),
            head +
                " serves this job on GPU 0 (1 visible): budget 168.00 MiB of 200.00 MiB (152.00 MiB for "
                "blocks, 16.00 MiB for other memory of the process; a reserve of 32.00 MiB), shared with "
                "other jobs, "
                "host memory none, disk none; rank 3 of 8");
}

TEST(ServedLineTest, SaysWhereNothingIsMoved) {
  ServedJob job;
  job.framework = "PyTorch 2.11";
  job.device = 1;
  job.devices = 4;
  job.memory = MemoryPartsOf({kGiB, 0}, kGiB);
  job.evicts = false;
  EXPECT_TRUE(ServedLine(job).ends_with("), nothing is moved")) << ServedLine(job);
  job.observes = true;
  EXPECT_TRUE(ServedLine(job).ends_with("nothing is moved (SPILLWAY=observe)"));
}

TEST(LargestBlocksTextTest, NamesTheLastKernelOfEach) {
  const auto name = [](policy::LaunchIndex index) -> std::string {
    return index == 7 ? "gemm" : index == 8 ? std::string(500, 'x') : "";
  };
  EXPECT_EQ(LargestBlocksText({}, name), "");
  EXPECT_EQ(LargestBlocksText(
                {{2 * kGiB, true, 7}, {kGiB, false, 7}, {kGiB, true, std::nullopt}, {kGiB, true, 1}}, name),
            "The largest live blocks: 2.00 GiB, last used by gemm; 1.00 GiB off the GPU, last used by gemm; "
            "1.00 GiB, not used yet; 1.00 GiB, last kernel not known");
  EXPECT_EQ(LargestBlocksText({{kGiB, true, 8}}, name),
            "The largest live blocks: 1.00 GiB, last used by " + std::string(96, 'x') + "...");
  EXPECT_EQ(LargestBlocksText({{kGiB, true, 8}}, nullptr),
            "The largest live blocks: 1.00 GiB, last kernel not known");
}

}  // namespace
}  // namespace spillway::integration
