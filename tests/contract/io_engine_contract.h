// What every IoEngine promises, as one suite. Instantiate IoEngineContract with a function that makes an
// engine over a given file with a given capacity; engines without real files ignore the descriptor.

#ifndef SPILLWAY_TESTS_CONTRACT_IO_ENGINE_CONTRACT_H_
#define SPILLWAY_TESTS_CONTRACT_IO_ENGINE_CONTRACT_H_

#include <gtest/gtest.h>
#include <unistd.h>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "io/engine/aligned_buffer.h"
#include "io/engine/engine.h"
#include "io/store/spill_file.h"
#include "tests/fakes/thread_state.h"
#include "tests/fakes/wait_until.h"
#include "tests/io/store_helpers.h"

namespace spillway::io {

struct EngineMaker {
  std::string name;
  std::function<std::unique_ptr<IoEngine>(int fd, size_t capacity)> make;
};

class IoEngineContract : public ::testing::TestWithParam<EngineMaker> {
 protected:
  static constexpr size_t kCapacity = 8;
  static constexpr uint32_t kPiece = 64u << 10;

  void SetUp() override {
    file_ = SpillFile::Create(directory_.path(), FileSystemCheck::kNormal, DirectIo::kIfPossible,
                              FileNaming::kUnnamedIfPossible)
                .value();
    engine_ = GetParam().make(file_->fd(), kCapacity);
    ASSERT_NE(engine_, nullptr);
  }

  void TearDown() override {
    if (engine_ != nullptr) {
      EXPECT_TRUE(engine_->Stop(std::chrono::seconds(5)));
    }
  }

  // Results by tag; fails when one comes twice or not in time.
  std::map<uint64_t, int32_t> Collect(size_t count) {
    std::map<uint64_t, int32_t> collected;
    const auto deadline = std::chrono::steady_clock::now() + tests::kPatience;
    while (collected.size() < count && std::chrono::steady_clock::now() < deadline) {
      IoResult results[3];  // fewer than may be there: the rest comes with the next call
      const size_t got = engine_->Poll(results, std::chrono::milliseconds(200));
      for (size_t i = 0; i < got; ++i) {
        EXPECT_TRUE(collected.emplace(results[i].tag, results[i].result).second) << "tag " << results[i].tag;
      }
    }
    EXPECT_EQ(collected.size(), count);
    return collected;
  }

  int32_t One(const IoRequest& request) {
    engine_->Submit({&request, 1});
    return Collect(1)[request.tag];
  }

  TestDirectory directory_;
  std::unique_ptr<SpillFile> file_;
  std::unique_ptr<IoEngine> engine_;
};

TEST_P(IoEngineContract, ReadsBackWhatItWroteWithAllInFlight) {
  AlignedBuffer data(kCapacity * kPiece);
  AlignedBuffer back(kCapacity * kPiece);
  FillPattern(data.data(), data.size(), 1);
  std::memset(back.data(), 0, back.size());
  for (int round = 0; round < 4; ++round) {
    for (const IoOp op : {IoOp::kWrite, IoOp::kRead}) {
      std::vector<IoRequest> requests;
      AlignedBuffer& buffer = op == IoOp::kWrite ? data : back;
      for (size_t i = 0; i < kCapacity; ++i) {
        const uint64_t place = kCapacity - 1 - i;
        requests.push_back(IoRequest{.op = op,
                                     .offset = place * kPiece,
                                     .length = kPiece,
                                     .buffer = buffer.data() + place * kPiece,
                                     .tag = 100 + i});
      }
      engine_->Submit(requests);
      for (const auto& [tag, result] : Collect(kCapacity)) {
        EXPECT_GE(tag, 100u);
        EXPECT_EQ(result, static_cast<int32_t>(kPiece));
      }
    }
    ASSERT_EQ(std::memcmp(data.data(), back.data(), data.size()), 0);
    FillPattern(data.data(), data.size(), 2 + round);
  }
}

TEST_P(IoEngineContract, TellsShortTransfersApart) {
  AlignedBuffer data(kPiece);
  FillPattern(data.data(), kPiece, 3);
  ASSERT_EQ(One({.op = IoOp::kWrite, .offset = 0, .length = kPiece, .buffer = data.data(), .tag = 1}),
            static_cast<int32_t>(kPiece));
  EXPECT_EQ(One({.op = IoOp::kRead, .offset = kPiece / 2, .length = kPiece, .buffer = data.data(), .tag = 2}),
            static_cast<int32_t>(kPiece / 2));
  EXPECT_EQ(One({.op = IoOp::kRead, .offset = kPiece * 4, .length = kPiece, .buffer = data.data(), .tag = 3}),
            0);
}

TEST_P(IoEngineContract, ErrorsAreResults) {
  AlignedBuffer data(kPiece);
  EXPECT_EQ(
      One({.file = 9, .op = IoOp::kRead, .offset = 0, .length = kPiece, .buffer = data.data(), .tag = 1}),
      -EBADF);
  if (file_->direct()) {
    EXPECT_EQ(
        One({.op = IoOp::kWrite, .offset = 0, .length = kPiece - 100, .buffer = data.data() + 1, .tag = 2}),
        -EINVAL);
  }
  // It still works.
  EXPECT_EQ(One({.op = IoOp::kWrite, .offset = 0, .length = kPiece, .buffer = data.data(), .tag = 3}),
            static_cast<int32_t>(kPiece));
}

TEST_P(IoEngineContract, PollEndsAfterItsTimeout) {
  IoResult result;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(engine_->Poll({&result, 1}, std::chrono::milliseconds(30)), 0u);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(20));
  EXPECT_EQ(engine_->Poll({&result, 1}, std::chrono::nanoseconds(0)), 0u);
}

TEST_P(IoEngineContract, WakeEndsPoll) {
  IoResult result;
  for (int round = 0; round < 3; ++round) {
    engine_->Wake();  // before: remembered
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(engine_->Poll({&result, 1}, std::chrono::seconds(20)), 0u);
    std::thread waker([this, poller = gettid()] {
      EXPECT_TRUE(tests::WaitUntil([poller] { return tests::ThreadWaits(poller); }));
      engine_->Wake();
    });
    EXPECT_EQ(engine_->Poll({&result, 1}, std::chrono::seconds(20)), 0u);
    waker.join();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  }
}

TEST_P(IoEngineContract, StopsWithTransfersInFlight) {
  AlignedBuffer data(kCapacity * kPiece);
  FillPattern(data.data(), data.size(), 4);
  std::vector<IoRequest> requests;
  for (size_t i = 0; i < kCapacity; ++i) {
    requests.push_back(IoRequest{.op = IoOp::kWrite,
                                 .offset = i * kPiece,
                                 .length = kPiece,
                                 .buffer = data.data() + i * kPiece,
                                 .tag = i});
  }
  engine_->Submit(requests);
  EXPECT_TRUE(engine_->Stop(std::chrono::seconds(5)));
  engine_.reset();
}

}  // namespace spillway::io

#endif  // SPILLWAY_TESTS_CONTRACT_IO_ENGINE_CONTRACT_H_
