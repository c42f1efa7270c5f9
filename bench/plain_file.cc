#include "bench/plain_file.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "io/os/clock.h"

namespace spillway::bench {
namespace {

constexpr int kThreads = 8;
constexpr uint32_t kRequestBytes = 512u << 10;

[[noreturn]] void Die(const std::string& text) {
  std::fprintf(stderr, "plain file: %s\n", text.c_str());
  std::exit(1);
}

}  // namespace

PlainFile::PlainFile(const std::string& directory, uint64_t bytes) : bytes_(bytes) {
  auto file = io::SpillFile::Create(directory, io::FileSystemCheck::kAny, io::DirectIo::kIfPossible,
                                    io::FileNaming::kUnnamedIfPossible);
  if (!file.ok()) Die(file.status().ToString());
  file_ = *std::move(file);
  if (const absl::Status grown = file_->Grow(bytes); !grown.ok()) Die(grown.ToString());
}

std::string PlainFile::path() const {
  return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(file_->fd());
}

double PlainFile::Transfer(bool write, io::AlignedBuffer* buffer) {
  const int64_t start = os::Clock::System()->NowNanos();
  std::atomic<uint64_t> next{0};  // each thread takes from it; joined before it goes
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, write, buffer, &next] {
      for (uint64_t offset = next.fetch_add(kRequestBytes); offset < bytes_;
           offset = next.fetch_add(kRequestBytes)) {
        char* data = buffer->data() + offset % buffer->size();
        const auto place = static_cast<off_t>(offset);
        const ssize_t moved = write ? pwrite(file_->fd(), data, kRequestBytes, place)
                                    : pread(file_->fd(), data, kRequestBytes, place);
        if (moved != static_cast<ssize_t>(kRequestBytes)) Die("a transfer failed");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return static_cast<double>(bytes_) / static_cast<double>(os::Clock::System()->NowNanos() - start);
}

}  // namespace spillway::bench
