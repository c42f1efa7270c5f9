#include "integration/cli/doctor/torch_facts.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "integration/settings/environment.h"
#include "io/os/clock.h"
#include "io/os/errno.h"
#include "nlohmann/json.hpp"

namespace spillway::integration {
namespace {

constexpr auto kPatience = std::chrono::seconds(30);

// find_spec of a package that is no part of another imports nothing.
constexpr char kQuestion[] = R"py(
import importlib.util, json, os, re, sys
sys.path = [p for p in sys.path if p]
def place(name):
    spec = importlib.util.find_spec(name)
    return list(spec.submodule_search_locations)[0] if spec and spec.submodule_search_locations else ""
answer = {"python": sys.executable, "torch": place("torch"), "package": place("spillway")}
if answer["torch"]:
    with open(os.path.join(answer["torch"], "version.py"), encoding="utf-8") as file:
        text = file.read()
    for key, name in (("version", "__version__"), ("cuda", "cuda")):
        found = re.search(rf"^{name}\b[^=]*=\s*['\"]([^'\"]*)", text, re.MULTILINE)
        answer[key] = found.group(1) if found else ""
with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
    answer["loads"] = any(line.rstrip().endswith("/libspillway.so") for line in maps)
print(json.dumps(answer))
)py";

std::string FirstPython(const std::string& path) {
  for (const char* name : {"python3", "python"}) {
    for (const absl::string_view folder : absl::StrSplit(path, ':', absl::SkipEmpty())) {
      std::string candidate = absl::StrCat(folder, "/", name);
      if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    }
  }
  return "";
}

// What the child writes, until it closes its end; kDeadlineExceeded where it takes too long.
absl::StatusOr<std::string> ReadAll(int from) {
  const auto deadline = os::SteadyClock::now() + kPatience;
  std::string text;
  char buffer[4096];
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - os::SteadyClock::now()).count();
    struct pollfd wait = {from, POLLIN, 0};
    if (left <= 0 || ::poll(&wait, 1, static_cast<int>(left)) == 0)
      return absl::DeadlineExceededError(absl::StrCat("no answer within ", kPatience.count(), " s"));
    const ssize_t bytes = ::read(from, buffer, sizeof(buffer));
    if (bytes == 0) return text;
    if (bytes < 0 && errno != EINTR) return os::StatusFromErrno(errno, "reading its answer");
    if (bytes > 0) text.append(buffer, static_cast<size_t>(bytes));
  }
}

absl::StatusOr<std::string> Ask(const std::string& python) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return os::StatusFromErrno(errno, "pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  char* const arguments[] = {const_cast<char*>(python.c_str()), const_cast<char*>("-B"),
                             const_cast<char*>("-c"), const_cast<char*>(kQuestion), nullptr};
  pid_t child = 0;
  const int error = ::posix_spawn(&child, python.c_str(), &actions, nullptr, arguments, WholeEnvironment());
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (error != 0) {
    ::close(ends[0]);
    return absl::NotFoundError(std::strerror(error));
  }
  absl::StatusOr<std::string> text = ReadAll(ends[0]);
  ::close(ends[0]);
  if (!text.ok()) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (text.ok() && status != 0)
    return absl::UnknownError(absl::StrCat("it ends with wait status ", status, ", is it a Python?"));
  return text;
}

}  // namespace

void ReadAnswer(const std::string& text, TorchFacts* facts) {
  // What the Python's own start-up files print comes before.
  const size_t line = text.rfind("\n{") == std::string::npos ? 0 : text.rfind("\n{") + 1;
  const auto answer = nlohmann::json::parse(text.substr(line), nullptr, /*allow_exceptions=*/false);
  if (!answer.is_object()) {
    facts->problem = "its answer cannot be read";
    return;
  }
  const auto word = [&answer](const char* key) {
    const auto found = answer.find(key);
    return found != answer.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  facts->package = word("package");
  const auto loads = answer.find("loads");
  facts->loads = loads != answer.end() && loads->is_boolean() && loads->get<bool>();
  if (word("torch").empty()) {
    facts->problem = "PyTorch is not installed in it";
    return;
  }
  facts->version = word("version");
  facts->cuda = word("cuda");
  const std::vector<std::string> parts = absl::StrSplit(facts->version, '.');
  if (parts.size() < 2) {
    facts->problem = absl::StrCat("its PyTorch in ", word("torch"), " has no version");
    return;
  }
  facts->minor = absl::StrCat(parts[0], ".", parts[1]);
}

TorchFacts AskPython(const std::string& named, const std::string& path) {
  TorchFacts facts;
  facts.named = !named.empty();
  facts.python = named.empty() ? FirstPython(path) : named;
  if (facts.python.empty()) {
    facts.problem = "there is no python3 in PATH";
    return facts;
  }
  const auto answer = Ask(facts.python);
  if (answer.ok()) {
    ReadAnswer(*answer, &facts);
  } else {
    facts.problem = std::string(answer.status().message());
  }
  return facts;
}

}  // namespace spillway::integration
