#include "bench/fio.h"

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

namespace spillway::bench {
namespace {

constexpr uint64_t kRequestBytes = 512u << 10;
constexpr uint64_t kThreads = 8;

[[noreturn]] void Die(const std::string& text) {
  std::fprintf(stderr, "fio: %s\n", text.c_str());
  std::exit(1);
}

struct Ended {
  int status = 0;  // of exit; -1: it could not be run, or was killed
  std::string text;
};

// By a shell: `command` holds no text of a user's.
Ended RunCommand(const std::string& command) {
  Ended ended{-1, ""};
  std::FILE* const output = ::popen(command.c_str(), "r");
  if (output == nullptr) return ended;
  char buffer[4096];
  for (size_t count; (count = std::fread(buffer, 1, sizeof(buffer), output)) > 0;)
    ended.text.append(buffer, count);
  const int status = ::pclose(output);
  if (status != -1 && WIFEXITED(status)) ended.status = WEXITSTATUS(status);
  return ended;
}

// Threads have a part of the file each.
std::string JobOf(FioWay way, uint64_t bytes) {
  if (way == FioWay::kUring) return "--ioengine=io_uring --iodepth=16 --size=" + std::to_string(bytes);
  const std::string part = std::to_string(bytes / kThreads / kRequestBytes * kRequestBytes);
  return "--ioengine=psync --numjobs=" + std::to_string(kThreads) + " --size=" + part +
         " --offset_increment=" + part;
}

}  // namespace

Fio::Fio() {
  const Ended ended = RunCommand("fio --version 2>/dev/null");
  if (ended.status != 0)
    Die("there is no program of that name; on Debian and Ubuntu `apt-get install fio` installs it");
  version_ = ended.text.substr(0, ended.text.find('\n'));
}

TransferStats Fio::Transfer(FioWay way, Direction direction, const std::string& path, uint64_t bytes) const {
  const char* const side = direction == Direction::kWrite ? "write" : "read";
  const std::string command = "fio --name=spill --filename=" + path + " --rw=" + side +
                              " --bs=" + std::to_string(kRequestBytes) + " " + JobOf(way, bytes) +
                              " --direct=1 --thread --group_reporting --scramble_buffers=0" +
                              " --allow_file_create=0 --output-format=json 2>&1";
  const Ended ended = RunCommand(command);
  const nlohmann::json json = nlohmann::json::parse(ended.text, nullptr, /*allow_exceptions=*/false);
  if (ended.status != 0 || json.is_discarded()) Die("it failed: " + command + "\n" + ended.text);
  const nlohmann::json& job = json.at("jobs").at(0);
  const double moved = job.at(side).at("io_bytes").get<double>() / 1e9;
  const double millis = job.at("job_runtime").get<double>();  // a sum over threads
  const double percent = job.at("usr_cpu").get<double>() + job.at("sys_cpu").get<double>();
  if (moved <= 0) Die("it moved nothing: " + command);
  return {job.at(side).at("bw_bytes").get<double>() / 1e9, percent / 100 * millis / 1e3 / moved};
}

}  // namespace spillway::bench
