#include "policy/estimate/training_iteration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policy/model/lifetimes.h"
#include "tests/sizes.h"

namespace spillway::policy {
namespace {

using ::testing::HasSubstr;

TrainingOptions Small() {
  TrainingOptions options;
  options.shape = {.layers = 4,
                   .width = 512,
                   .wide = 2048,
                   .heads = 8,
                   .key_heads = 8,
                   .head_width = 64,
                   .vocabulary = 4096,
                   .gated = true};
  options.batch = {4, 256, 0, AttentionForm::kFlash, false};
  options.precision = Precision::kFp32;
  options.optimizer = Optimizer::kAdamWFused;
  return options;
}

TapeResult Made(const TrainingOptions& options) {
  auto result = EstimateIteration(options);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *std::move(result) : TapeResult{};
}

Bytes PeakOf(const TrainingOptions& options) { return Made(options).peak_allocated; }

std::string ErrorOf(const TrainingOptions& options) {
  const auto result = EstimateIteration(options);
  return result.ok() ? "" : std::string(result.status().message());
}

// One token has hardly any activations: weights, gradients and two states of 4 bytes remain.
TEST(TrainingIterationTest, WithoutActivationsFourTimesTheWeightsAreThere) {
  TrainingOptions options = Small();
  options.batch.sequences = options.batch.tokens = 1;
  const double weights = 4.0 * static_cast<double>(options.shape.Parameters());
  EXPECT_NEAR(static_cast<double>(PeakOf(options)), 4 * weights, 0.01 * weights);
  options.optimizer = Optimizer::kAdamW;
  EXPECT_NEAR(static_cast<double>(PeakOf(options)), 5 * weights, 0.01 * weights);
  options.optimizer = Optimizer::kSgd;
  EXPECT_NEAR(static_cast<double>(PeakOf(options)), 2 * weights, 0.03 * weights);
  options.optimizer = Optimizer::kSgdMomentum;
  options.precision = Precision::kBf16;
  EXPECT_NEAR(static_cast<double>(PeakOf(options)), 1.5 * weights, 0.03 * weights);
}

TEST(TrainingIterationTest, TermsAddUpToThePeak) {
  const TapeResult result = Made(Small());
  Bytes all = 0;
  for (const Bytes bytes : result.terms) all += bytes;
  EXPECT_EQ(all, result.peak_allocated);
  EXPECT_GE(result.peak_reserved, result.peak_allocated);
}

TEST(TrainingIterationTest, ThePeakGrowsWithEverythingThatGrows) {
  const Bytes peak = PeakOf(Small());
  for (int what = 0; what < 5; ++what) {
    TrainingOptions options = Small();
    if (what == 0) options.batch.sequences *= 2;
    if (what == 1) options.batch.tokens *= 2;
    if (what == 2) options.shape.layers += 1;
    if (what == 3) options.shape.vocabulary *= 2;
    if (what == 4) options.batch.form = AttentionForm::kMath;
    EXPECT_GT(PeakOf(options), peak) << what;
  }
}

TEST(TrainingIterationTest, CheckpointingAndAdaptersSaveMemory) {
  const Bytes peak = PeakOf(Small());
  TrainingOptions options = Small();
  options.batch.checkpointing = true;
  EXPECT_LT(PeakOf(options), peak);
  options = Small();
  options.adapters.rank = 8;
  const Bytes adapted = PeakOf(options);
  EXPECT_LT(adapted, peak);
  options.adapters.dropout = true;  // masks, and what the products keep
  EXPECT_GT(PeakOf(options), adapted);
}

// The planner and the allocator see the same peak, in whole chunks.
TEST(TrainingIterationTest, TheTraceHasThePeak) {
  for (const ZeroGradients zero : {ZeroGradients::kAfterUpdate, ZeroGradients::kBeforeBackward}) {
    TrainingOptions options = Small();
    options.zero = zero;
    const TapeResult result = Made(options);
    EXPECT_EQ(static_cast<Bytes>(FindLifetimes(result.workload).PeakLive()), result.peak_chunks);
    EXPECT_EQ(result.workload.kernels.size(), result.costs.size());
  }
}

TEST(TrainingIterationTest, MicroBatchesAddLaunchesAndKeepGradients) {
  TrainingOptions options = Small();
  const size_t once = Made(options).workload.kernels.size();
  options.micro_batches = 3;
  const TapeResult thrice = Made(options);
  EXPECT_GT(thrice.workload.kernels.size(), 2 * once);
  EXPECT_GE(thrice.peak_allocated, PeakOf(Small()));
}

TEST(TrainingIterationTest, TheWorkspaceIsThere) {
  TrainingOptions options = Small();
  options.workspace = 32 * kMiB;
  EXPECT_EQ(PeakOf(options), PeakOf(Small()) + 32 * kMiB);
}

// The targets of an encoder and decoder are counted, too: their logits, and the biases of their positions.
TEST(TrainingIterationTest, CountsTheTargetsBeforeItAccepts) {
  TrainingOptions options = Small();
  options.shape.family = Family::kT5;
  options.shape.decoder_layers = 4;
  options.shape.buckets = 32;
  options.batch.targets = 64;
  EXPECT_EQ(ErrorOf(options), "");
  options.batch.targets = 1 << 21;  // 8 heads x (2^21)^2
  EXPECT_THAT(ErrorOf(options), HasSubstr("--batch=4 with --sequence=256 and --target=2097152 is invalid"));
  options.batch.targets = 1 << 18;
  options.batch.sequences = 1 << 14;
  EXPECT_THAT(ErrorOf(options), HasSubstr("1e13"));  // 2^14 x 2^18 x 4,096 words
  options.shape.family = Family::kLlama;             // which has no targets
  options.batch.sequences = 4;
  options.batch.targets = 1 << 21;
  EXPECT_EQ(ErrorOf(options), "");
}

// PyTorch has no fused kernel in fp32 for heads that share keys: there are scores.
TEST(TrainingIterationTest, CountsTheScoresOfSharedKeysInFp32) {
  TrainingOptions options = Small();
  options.shape.key_heads = 2;
  options.batch = {1, 1 << 21, 0, AttentionForm::kSdpa, false};
  EXPECT_THAT(ErrorOf(options), HasSubstr("1e13"));
  options.batch = {4, 256, 0, AttentionForm::kSdpa, false};
  const Bytes chosen = PeakOf(options);
  options.batch.form = AttentionForm::kMath;
  EXPECT_EQ(PeakOf(options), chosen);
  options.batch.form = AttentionForm::kFlash;
  EXPECT_LT(PeakOf(options), chosen);
}

// Four sequences of 1,024 tokens with a window: each of 4 layers keeps a mask of 4 x 1,024 x 1,024 numbers.
TEST(TrainingIterationTest, AWindowHasMasks) {
  TrainingOptions options = Small();
  options.batch = {4, 1024, 0, AttentionForm::kSdpa, false};
  const Bytes without = PeakOf(options);
  options.shape.window = 1025;
  EXPECT_EQ(PeakOf(options), without);
  options.shape.window = 1024;
  EXPECT_GE(PeakOf(options), without + 4 * 4 * 4 * kMiB);
  options.batch.form = AttentionForm::kFlash;  // knows windows
  EXPECT_EQ(PeakOf(options), without);
  options.batch = {1, 1 << 23, 0, AttentionForm::kSdpa, false};
  EXPECT_THAT(ErrorOf(options), HasSubstr("1e13"));
}

TEST(TrainingIterationTest, SaysWhatItDoesNotAccept) {
  TrainingOptions options = Small();
  options.batch.sequences = 0;
  EXPECT_THAT(ErrorOf(options), HasSubstr("--batch=0 is invalid; expected: 1 to"));
  options = Small();
  options.batch.tokens = uint64_t{1} << 40;
  EXPECT_THAT(ErrorOf(options), HasSubstr("--sequence="));
  options = Small();
  options.batch = {1 << 20, 1 << 20, 0, AttentionForm::kFlash, false};
  EXPECT_THAT(ErrorOf(options), HasSubstr("1e13"));
  options = Small();
  options.adapters.rank = 1 << 16;
  options.batch.sequences = 1 << 20;
  EXPECT_THAT(ErrorOf(options), HasSubstr("--batch=1048576 with --sequence=256 and --lora=65536 is invalid"));
  options = Small();
  options.shape.positions = 128;
  EXPECT_THAT(ErrorOf(options), HasSubstr("up to 128, the model's learned positions"));
  options = Small();
  options.shape.family = Family::kT5;
  EXPECT_THAT(ErrorOf(options), HasSubstr("decoder layers"));
  options = Small();
  options.shape.layers = 900;
  options.micro_batches = 1000;
  EXPECT_THAT(ErrorOf(options), HasSubstr("--accumulate=1000"));
}

}  // namespace
}  // namespace spillway::policy
