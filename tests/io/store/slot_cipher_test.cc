#include "io/store/slot_cipher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tests/io/store_helpers.h"

namespace spillway::io {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kTextBytes = 8192;

// The sanitizers' mlock does nothing.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kLocks = false;
#else
constexpr bool kLocks = true;
#endif

std::unique_ptr<SlotCipher> Make() {
  auto cipher = SlotCipher::Create();
  EXPECT_TRUE(cipher.ok()) << cipher.status();
  return *std::move(cipher);
}

std::vector<char> Pattern() {
  std::vector<char> bytes(kTextBytes);
  FillPattern(bytes.data(), bytes.size(), 5);
  return bytes;
}

std::vector<char> Encrypted(const SlotCipher& cipher, const SlotCipher::Use& use,
                            const std::vector<char>& plain) {
  std::vector<char> text(plain.size());
  EXPECT_TRUE(cipher.Encrypt(use, plain.data(), static_cast<uint32_t>(plain.size()), text.data()).ok());
  return text;
}

TEST(SlotCipherTest, WhatIsEncryptedComesBackAndTheSourceStays) {
  const auto cipher = Make();
  const std::vector<char> plain = Pattern();
  std::vector<char> text = Encrypted(*cipher, {1, 2, 3}, plain);
  EXPECT_EQ(plain, Pattern());
  EXPECT_NE(text, plain);
  ASSERT_TRUE(cipher->Decrypt({1, 2, 3}, text.data(), kTextBytes, text.data()).ok()) << "in its place";
  EXPECT_EQ(text, plain);
}

TEST(SlotCipherTest, EqualBytesHaveOtherCipherTextInEachUseOfEachSlot) {
  const auto cipher = Make();
  const std::vector<char> plain(kTextBytes, 0);
  const std::vector<char> text = Encrypted(*cipher, {1, 2, 3}, plain);
  for (const SlotCipher::Use use : {SlotCipher::Use{0, 2, 3}, {1, 1, 3}, {1, 2, 4}, {2, 1, 3}, {3, 2, 1}})
    EXPECT_NE(Encrypted(*cipher, use, plain), text);
  EXPECT_NE(std::memcmp(text.data(), text.data() + 16, 16), 0) << "nor is one block of AES like the next";
  EXPECT_NE(Encrypted(*Make(), {1, 2, 3}, plain), text) << "under another process's key";
}

TEST(SlotCipherTest, WithoutOpenSslThereIsAReason) {
  EXPECT_THAT(std::string(SlotCipher::Create("libno-such-thing.so.3").status().message()),
              HasSubstr("libno-such-thing.so.3"));
  const absl::Status other = SlotCipher::Create("libc.so.6").status();
  EXPECT_TRUE(absl::IsUnavailable(other));
  EXPECT_EQ(other.message(), "libc.so.6 is not OpenSSL 3");
}

TEST(SlotCipherTest, AKeyThatCannotBeLockedIsRefused) {
  if (!kLocks) GTEST_SKIP() << "memory is not locked under this sanitizer";
  const pid_t child = fork();
  if (child == 0) {
    rlimit none = {0, 0};
    // Root may lock what it likes.
    const bool ready = setrlimit(RLIMIT_MEMLOCK, &none) == 0 && (geteuid() != 0 || setuid(65534) == 0);
    const absl::Status status = SlotCipher::Create().status();
    const bool refused =
        absl::IsFailedPrecondition(status) && status.message().find("ulimit -l") != std::string::npos;
    _exit(!ready ? 2 : refused ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "there is no other user to be";
  EXPECT_EQ(status, 0);
}

// The flags of the page in /proc/self/smaps: locked (lo), not in core files (dd), emptied in children (wf).
TEST(SlotCipherTest, TheKeysPageIsLockedAndNeitherDumpedNorInherited) {
  if (!kLocks) GTEST_SKIP() << "memory is not locked under this sanitizer";
  const auto pages_like_it = [] {
    std::ifstream maps("/proc/self/smaps");
    int found = 0;
    for (std::string line; std::getline(maps, line);) {
      if (!line.starts_with("VmFlags:")) continue;
      found += line.find(" lo") != std::string::npos && line.find(" dd") != std::string::npos &&
               line.find(" wf") != std::string::npos;
    }
    return found;
  };
  const int before = pages_like_it();
  const auto cipher = Make();
  EXPECT_GT(pages_like_it(), before);
}

// An exit handler from before OpenSSL's runs after it: what a worker would use then is gone.
TEST(SlotCipherTest, OnceOpenSslHasEndedNothingIsConverted) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process that has no OpenSSL yet
  static std::unique_ptr<SlotCipher> cipher;
  EXPECT_EXIT(
      {
        std::atexit([] {
          const std::vector<char> plain = Pattern();
          std::vector<char> text(plain.size());
          std::fprintf(stderr, "%s\n",
                       cipher->Encrypt({}, plain.data(), kTextBytes, text.data()).ToString().c_str());
          cipher.reset();
        });
        cipher = Make();
        std::exit(0);
      },
      testing::ExitedWithCode(0), "OpenSSL has ended with the process");
}

}  // namespace
}  // namespace spillway::io
