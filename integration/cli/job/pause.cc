#include "integration/cli/job/pause.h"

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "integration/cli/common/exit_status.h"
#include "integration/cli/common/utf8.h"
#include "integration/engine/job_socket.h"
#include "io/os/bytes_text.h"

namespace spillway::integration {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kNotDone = 1;
constexpr auto kOneAnswer = std::chrono::milliseconds(5000);  // for one answer
constexpr auto kBetween = std::chrono::milliseconds(20);
constexpr double kMaxTimeout = 1e6;

CLI::App* Add(CLI::App* app, const char* name, const char* what, PauseOptions* options) {
  CLI::App* const command = app->add_subcommand(name, what);
  command->add_option("PID", options->pids, "Processes of this user, as `spillway top` shows them")
      ->required();
  command->add_option("--timeout", options->timeout, "Seconds to wait for all of them")
      ->capture_default_str();
  return command;
}

uint64_t BytesIn(const nlohmann::json& state, const char* key) {
  const auto found = state.find(key);
  return found != state.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
}

double SecondsIn(const nlohmann::json& state) {
  const auto found = state.find("seconds");
  return found != state.end() && found->is_number() ? found->get<double>() : 0;
}

std::string TextIn(const nlohmann::json& state, const char* key) {
  const auto found = state.find(key);
  return found != state.end() && found->is_string() ? WithoutControls(found->get<std::string>()) : "";
}

std::string PausedText(const nlohmann::json& state) {
  const uint64_t copied = BytesIn(state, "host_bytes") + BytesIn(state, "disk_bytes");
  const uint64_t left = copied + BytesIn(state, "clean_bytes") + BytesIn(state, "dropped_bytes") +
                        BytesIn(state, "unused_bytes");
  std::string text = absl::StrFormat("paused in %.1f s: %s left the GPU, %s of them by copies; %s given back",
                                     SecondsIn(state), os::BytesText(left), os::BytesText(copied),
                                     os::BytesText(BytesIn(state, "released_bytes")));
  const auto stays = [&](const char* key, const char* why) {
    if (BytesIn(state, key) > 0) absl::StrAppend(&text, "; ", os::BytesText(BytesIn(state, key)), " ", why);
  };
  stays("pinned_bytes", "must stay (graphs, IPC)");
  stays("failed_bytes", "could not be copied");
  const std::string failure = TextIn(state, "failure");
  return failure.empty() ? text : absl::StrCat(text, " (", failure, ")");
}

class Command {
 public:
  Command(bool pause, const PauseOptions& options) : pause_(pause), options_(options) {}

  int Run() {
    if (!(options_.timeout > 0 && options_.timeout <= kMaxTimeout)) {
      return Refuse(absl::InvalidArgumentError(
          absl::StrCat("--timeout ", options_.timeout, " is invalid; expected: seconds above 0")));
    }
    deadline_ = Clock::now() +
                std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.timeout));
    std::vector<pid_t> asked;
    for (const pid_t pid : options_.pids) {  // all begin before the first is waited for
      if (Ask(pid, pause_ ? "pause" : "resume").ok()) asked.push_back(pid);
    }
    for (const pid_t pid : asked) Await(pid);
    return all_well_ ? 0 : kNotDone;
  }

 private:
  absl::StatusOr<nlohmann::json> Ask(pid_t pid, const std::string& question) {
    const absl::StatusOr<std::string> answer = AskJob(folder_, pid, question, kOneAnswer);
    if (!answer.ok()) return Problem(pid, std::string(answer.status().message()));
    nlohmann::json state = nlohmann::json::parse(*answer, nullptr, /*allow_exceptions=*/false);
    if (!state.is_object()) return Problem(pid, "its answer is not of this version");
    if (const std::string error = TextIn(state, "error"); !error.empty()) return Problem(pid, error);
    return state;
  }

  void Await(pid_t pid) {
    for (;;) {
      const absl::StatusOr<nlohmann::json> state = Ask(pid, "pause state");
      if (!state.ok()) return;
      if (TextIn(*state, "state") == (pause_ ? "paused" : "running")) {
        std::printf("%d: %s\n", pid, pause_ ? PausedText(*state).c_str() : "runs again");
        all_well_ &= !pause_ || BytesIn(*state, "failed_bytes") == 0;
        return;
      }
      if (Clock::now() >= deadline_) {
        static_cast<void>(Problem(
            pid, absl::StrFormat("not done after %.0f s; it continues in the background", options_.timeout)));
        return;
      }
      std::this_thread::sleep_for(kBetween);
    }
  }

  absl::Status Problem(pid_t pid, const std::string& words) {
    std::fprintf(stderr, "spillway: %d is not %s: %s\n", pid, pause_ ? "paused" : "resumed", words.c_str());
    all_well_ = false;
    return absl::UnavailableError(words);
  }

  const bool pause_;
  const PauseOptions& options_;
  const std::string folder_ = JobSocketFolder();
  Clock::time_point deadline_;
  bool all_well_ = true;
};

}  // namespace

CLI::App* AddPause(CLI::App* app, PauseOptions* options) {
  return Add(app, "pause", "Pause running jobs: they give up their GPU memory and wait", options);
}

CLI::App* AddResume(CLI::App* app, PauseOptions* options) {
  return Add(app, "resume", "Resume paused jobs", options);
}

int PauseJobs(const PauseOptions& options) { return Command(/*pause=*/true, options).Run(); }

int ResumeJobs(const PauseOptions& options) { return Command(/*pause=*/false, options).Run(); }

}  // namespace spillway::integration
