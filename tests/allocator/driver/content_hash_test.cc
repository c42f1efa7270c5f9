// The content hash on the host: quality, order, and the text that is compiled for the device.

#include "allocator/driver/content_hash.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/allocator/driver/nvrtc.h"

namespace spillway::allocator {
namespace {

using Words = std::vector<uint64_t>;  // 16-byte aligned by the allocator

Words Noise(size_t words, int seed) {
  std::mt19937_64 random(seed);
  Words data(words);
  for (uint64_t& word : data) word = random();
  return data;
}

ContentHash Of(const Words& data) { return HashOf(data.data(), data.size() * 8); }

int BitsThatDiffer(const ContentHash& a, const ContentHash& b) {
  return std::popcount(a.low ^ b.low) + std::popcount(a.high ^ b.high);
}

TEST(ContentHashTest, EqualContentHasEqualHash) {
  EXPECT_EQ(Of(Noise(4096, 1)), Of(Noise(4096, 1)));
  EXPECT_FALSE(Of(Noise(4096, 1)) == Of(Noise(4096, 2)));
}

TEST(ContentHashTest, EverySingleBitChangesTheHash) {
  Words data(64);  // zeros: nothing else carries the difference
  std::set<std::pair<uint64_t, uint64_t>> seen;
  const auto note = [&] {
    const ContentHash hash = Of(data);
    return seen.insert({hash.low, hash.high}).second;
  };
  ASSERT_TRUE(note());
  for (size_t bit = 0; bit < data.size() * 64; ++bit) {
    data[bit / 64] ^= uint64_t{1} << (bit % 64);
    EXPECT_TRUE(note()) << "bit " << bit;
    data[bit / 64] ^= uint64_t{1} << (bit % 64);
  }
}

TEST(ContentHashTest, EveryBitInMovesHalfOfTheBitsOut) {
  const Words noise = Noise(512, 3);
  for (const Words& base : {noise, Words(512)}) {
    const ContentHash before = Of(base);
    double sum = 0;
    int least = 128;
    constexpr size_t kBits = 2048;
    for (size_t bit = 0; bit < kBits; ++bit) {
      Words data = base;
      data[bit / 64] ^= uint64_t{1} << (bit % 64);
      const int moved = BitsThatDiffer(before, Of(data));
      sum += moved;
      least = std::min(least, moved);
    }
    EXPECT_NEAR(sum / kBits, 64, 2);
    EXPECT_GE(least, 20);
  }
}

// The changes that training makes: signs, small steps, values that trade places or are moved along.
TEST(ContentHashTest, ChangesOfTrainingAreSeen) {
  const Words base = Noise(1024, 4);
  const ContentHash before = Of(base);
  const auto differs = [&](const char* what, const Words& data) { EXPECT_FALSE(Of(data) == before) << what; };
  Words data = base;
  std::swap(data[10], data[12]);
  std::swap(data[11], data[13]);
  differs("two vectors swapped", data);
  data = base;
  std::swap(data[10], data[11]);
  differs("two words of a vector swapped", data);
  data = base;
  for (uint64_t& word : data) word ^= uint64_t{1} << 63;
  differs("all signs", data);
  data = base;
  data[100] += 1;
  data[102] -= 1;
  differs("one up, one down", data);
  data = base;
  std::rotate(data.begin(), data.begin() + 2, data.end());
  differs("moved along", data);
  EXPECT_FALSE(Of(Words(64)) == Of(Words(128))) << "zeros of another length";
}

// The top bits of words at two places: where a plain multiply would let them cancel.
TEST(ContentHashTest, PairsOfTopBitsDoNotCancel) {
  const Words base = Noise(256, 5);
  const ContentHash before = Of(base);
  for (size_t i = 0; i < base.size(); ++i) {
    for (size_t j = i + 1; j < base.size(); ++j) {
      Words data = base;
      data[i] ^= uint64_t{1} << 63;
      data[j] ^= uint64_t{1} << 63;
      EXPECT_FALSE(Of(data) == before) << i << " and " << j;
    }
  }
}

TEST(ContentHashTest, PartsAddUpInAnyOrder) {
  const Words data = Noise(2048, 6);
  for (uint64_t parts : {1u, 2u, 7u, 512u}) {
    ContentHash sum;
    for (uint64_t part = parts; part-- > 0;)
      content_hash::Add(data.data(), part, data.size() / 2, parts, &sum);
    EXPECT_EQ(sum, Of(data)) << parts;
  }
}

TEST(ContentHashTest, GridsFollowTheSize) {
  EXPECT_EQ(content_hash::BlocksFor(4096), 1u);
  EXPECT_EQ(content_hash::BlocksFor(64 << 10), 2u);
  EXPECT_EQ(content_hash::BlocksFor(uint64_t{1} << 40), content_hash::kMaxBlocks);
}

// ---- Against NVRTC. It needs no GPU; machines without PyTorch's CUDA libraries skip.

#ifdef SPILLWAY_NVRTC
std::string SourceText(const char* name) {
  std::ifstream file(std::string(SPILLWAY_DRIVER_SOURCES "/") + name);
  return {std::istreambuf_iterator<char>(file), {}};
}

absl::StatusOr<std::string> PtxOf(const Nvrtc& nvrtc, const std::string& source) {
  return nvrtc.CompileToPtx(source, "content_hash.def", SourceText("content_hash.def"),
                            content_hash::kMinCapability);
}

// Up to the instructions: which release made it, and for which version of PTX, may differ.
std::string Release(const std::string& ptx) {
  const size_t at = ptx.find("Cuda compilation tools, ");
  return at == std::string::npos ? "" : ptx.substr(at, ptx.find('\n', at) - at);
}

std::string Instructions(const std::string& ptx) {
  const size_t at = ptx.find(".visible .entry");
  return at == std::string::npos ? "" : ptx.substr(at, ptx.rfind('}') - at);
}
#endif

// With SPILLWAY_WRITE_PTX=FILE what is kept in the tree is written anew, for drivers since CUDA 10.
TEST(KernelPtxTest, IsWhatNvrtcMakesOfTheSource) {
#ifdef SPILLWAY_NVRTC
  auto nvrtc = Nvrtc::Open(SPILLWAY_NVRTC);
  ASSERT_TRUE(nvrtc.ok()) << nvrtc.status();
  auto made = PtxOf(**nvrtc, SourceText("content_hash.cu"));
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_NE(Instructions(*made).find(content_hash::kKernelName), std::string::npos);
  if (const char* const file = std::getenv("SPILLWAY_WRITE_PTX")) {
    std::string text = *made;
    const size_t version = text.find(".version ");
    text.replace(version, text.find('\n', version) - version, ".version 6.3");
    std::ofstream(file) << "R\"PTX(" << text.c_str() << ")PTX\"\n";
    return;
  }
  // Another release may make other instructions of the same source.
  if (Release(*made) != Release(content_hash::KernelPtx())) GTEST_SKIP() << Release(*made);
  EXPECT_EQ(Instructions(*made), Instructions(content_hash::KernelPtx()));
  EXPECT_EQ(PtxOf(**nvrtc, "this is no CUDA C").status().code(), absl::StatusCode::kInternal);
#else
  GTEST_SKIP() << "no NVRTC here";
#endif
}

TEST(KernelPtxTest, NamesTheKernelAndWhatItNeeds) {
  const std::string ptx = content_hash::KernelPtx();
  EXPECT_NE(ptx.find(std::string(".entry ") + content_hash::kKernelName + "("), std::string::npos);
  EXPECT_NE(ptx.find("\n.version 6.3\n.target sm_75\n"), std::string::npos);
}

}  // namespace
}  // namespace spillway::allocator
