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
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "integration/settings/environment.h"
#include "io/os/clock.h"
#include "io/os/errno.h"
#include "nlohmann/json.hpp"

namespace spillway::integration {
namespace {

constexpr auto kTimeout = std::chrono::seconds(30);
constexpr size_t kMaxTextBytes = 4096;  // kept of its output to standard error

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

// A stream of the child's: a pipe of which this process reads the end. Closed when the object goes.
struct Stream {
  Stream() {
    if (::pipe2(ends, O_CLOEXEC) != 0) ends[0] = ends[1] = -1;
  }
  ~Stream() {
    Close(0);
    Close(1);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void Close(int end) {
    if (ends[end] >= 0) ::close(std::exchange(ends[end], -1));
  }
  // Appends what is there, and closes at its end. Returns false if it cannot be read.
  bool Read() {
    char buffer[4096];
    const ssize_t bytes = ::read(ends[0], buffer, sizeof(buffer));
    if (bytes < 0) return errno == EINTR;
    if (bytes == 0) Close(0);
    text.append(buffer, static_cast<size_t>(bytes));
    return true;
  }

  int ends[2];
  std::string text;
};

// Reads the child's output until it closes both ends; kDeadlineExceeded if it takes too long.
absl::Status ReadAll(Stream* answer, Stream* words) {
  const auto deadline = os::SteadyClock::now() + kTimeout;
  while (answer->ends[0] >= 0 || words->ends[0] >= 0) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - os::SteadyClock::now()).count();
    struct pollfd waits[] = {{answer->ends[0], POLLIN, 0}, {words->ends[0], POLLIN, 0}};
    if (left <= 0 || ::poll(waits, 2, static_cast<int>(left)) == 0)
      return absl::DeadlineExceededError(absl::StrCat("no answer within ", kTimeout.count(), " s"));
    if ((waits[0].revents != 0 && !answer->Read()) || (waits[1].revents != 0 && !words->Read()))
      return os::StatusFromErrno(errno, "reading its answer");
    if (words->text.size() > kMaxTextBytes) words->text.erase(0, words->text.size() - kMaxTextBytes);
  }
  return absl::OkStatus();
}

// Returns this process's environment with SPILLWAY_REQUIRE=off: a process that is not served is a finding
// here, and must not end the child. The variable wins over a key in PyTorch's.
std::vector<std::string> EnvironmentOfChild() {
  const std::string require = VariableOf("require");
  std::vector<std::string> variables = {require + "=off"};
  for (char** entry = WholeEnvironment(); entry != nullptr && *entry != nullptr; ++entry) {
    if (!absl::StartsWith(*entry, require + "=")) variables.emplace_back(*entry);
  }
  return variables;
}

// Returns "it ends with exit status 1 and says: ImportError: ...".
std::string WhyEnded(int status, const std::string& words) {
  std::string last;
  for (const absl::string_view line : absl::StrSplit(words, '\n', absl::SkipWhitespace()))
    last = std::string(line);
  const std::string how = WIFSIGNALED(status) ? absl::StrCat("signal ", WTERMSIG(status))
                                              : absl::StrCat("exit status ", WEXITSTATUS(status));
  return absl::StrCat("it ends with ", how, last.empty() ? ", is it a Python?" : " and says: ", last);
}

absl::StatusOr<std::string> Ask(const std::string& python) {
  Stream answer, words;
  if (answer.ends[0] < 0 || words.ends[0] < 0) return os::StatusFromErrno(errno, "pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, answer.ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, words.ends[1], STDERR_FILENO);
  char* const arguments[] = {const_cast<char*>(python.c_str()), const_cast<char*>("-B"),
                             const_cast<char*>("-c"), const_cast<char*>(kQuestion), nullptr};
  std::vector<std::string> variables = EnvironmentOfChild();
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, python.c_str(), &actions, nullptr, arguments, environment.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return absl::NotFoundError(std::strerror(error));
  answer.Close(1);
  words.Close(1);
  const absl::Status read = ReadAll(&answer, &words);
  if (!read.ok()) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (!read.ok()) return read;
  if (status != 0) return absl::UnknownError(WhyEnded(status, words.text));
  return answer.text;
}

}  // namespace

void ReadAnswer(const std::string& text, TorchFacts* facts) {
  // The output of the Python's own start-up files comes before the answer.
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
