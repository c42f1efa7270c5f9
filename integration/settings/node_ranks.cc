#include "integration/settings/node_ranks.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace spillway::integration {
namespace {

struct Launcher {
  const char* name;
  const char* rank;
  const char* size;    // null: the launcher does not report how many
  const char* marker;  // a variable that must be set, too, for the others to be this launcher's; null: none
};

// The launchers, the innermost first: one that starts the processes themselves stands before one that starts
// it.
constexpr Launcher kLaunchers[] = {
    {"torchrun", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "LOCAL_WORLD_SIZE"},
    {"Accelerate's notebook_launcher", "LOCAL_RANK", "NPROC", "FORK_LAUNCHED"},
    {"LOCAL_RANK", "LOCAL_RANK", nullptr, "LOCAL_RANK"},
    {"OpenMPI", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", nullptr},
    {"MPICH", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", nullptr},
    {"MVAPICH", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE", nullptr},
    {"PMI", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE", nullptr},
    {"PALS", "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE", nullptr},
};
constexpr size_t kOuter = 3;  // from here on: launchers that may stand around a LOCAL_RANK without a number

// The variables that tell two jobs of a node apart. Each that is set counts.
constexpr const char* kJobVariables[] = {"TORCHELASTIC_RUN_ID", "MASTER_ADDR",    "MASTER_PORT",
                                         "SLURM_JOB_ID",        "PMIX_NAMESPACE", "PMI_JOBID"};

class Ranks {
 public:
  Ranks(const VariableSource& variables, std::vector<std::string>* warnings)
      : variables_(variables), warnings_(warnings) {}

  // Returns the value of the variable; null if it is not set, or empty.
  const char* Value(const char* name) const {
    const char* const text = name == nullptr ? nullptr : variables_(name);
    return text == nullptr || *text == '\0' ? nullptr : text;
  }

  // Returns the variable as a whole number from `least` on. None if it is not set, or, with a sentence, if it
  // is no such number.
  std::optional<int> Number(const char* name, int least) {
    const char* const text = Value(name);
    if (text == nullptr) return std::nullopt;
    int64_t number = 0;
    const bool whole = absl::SimpleAtoi(text, &number);
    if (whole && number >= least) return static_cast<int>(std::min<int64_t>(number, kMaxRanks));
    if (whole && number == -1) return std::nullopt;  // some scripts set -1 if they are not distributed
    Refuse(absl::StrCat(name, "=", text), absl::StrCat("whole numbers from ", least));
    return std::nullopt;
  }

  void Refuse(const std::string& what, const std::string& accepted) {
    const std::string sentence = absl::StrCat(what, " is left out; expected: ", accepted);
    if (std::find(warnings_->begin(), warnings_->end(), sentence) == warnings_->end())
      warnings_->push_back(sentence);
  }

  // Returns the ranks that this launcher reports; none if it reports nothing.
  std::optional<NodeRanks> Of(const Launcher& launcher) {
    if (launcher.marker != nullptr && Value(launcher.marker) == nullptr) return std::nullopt;
    const std::optional<int> rank = Number(launcher.rank, 0);
    const std::optional<int> size = Number(launcher.size, 1);
    if (!rank && !size) return std::nullopt;
    return Checked({rank.value_or(0), size.value_or(0), launcher.name, ""}, launcher.rank, launcher.size);
  }

  // Returns srun's ranks. The variables that a batch script itself sees are not those of its processes, so
  // the number of a job step is required.
  std::optional<NodeRanks> OfSlurm();

  // Treats the number as not known if the rank is not below it: a part that is too large is worse than one
  // that is found out.
  NodeRanks Checked(NodeRanks ranks, const char* rank_name, const char* size_name) {
    if (ranks.size == 0 || ranks.rank < ranks.size) return ranks;
    Refuse(absl::StrCat(rank_name, "=", ranks.rank, " beside ", size_name, "=", ranks.size),
           "a rank below the number of ranks, which is ignored");
    ranks.size = 0;
    return ranks;
  }

  std::string Job() const {
    std::string job;
    for (const char* name : kJobVariables) {
      if (const char* const text = Value(name)) absl::StrAppend(&job, text, "/");
    }
    return job;
  }

 private:
  const VariableSource& variables_;
  std::vector<std::string>* const warnings_;
};

// Returns the entry of node `node` in "4(x2),3": 4 for the nodes 0 and 1, 3 for node 2. None if the text is
// no such list, or is too short.
std::optional<int> TasksOfNode(std::string_view text, int node) {
  int first = 0;
  for (const absl::string_view absl_entry :
       absl::StrSplit(absl::string_view(text.data(), text.size()), ',')) {
    std::string_view entry(absl_entry.data(), absl_entry.size());
    int times = 1;
    if (const size_t open = entry.find("(x"); open != std::string_view::npos) {
      const std::string_view inside = entry.substr(open + 2);
      if (!inside.ends_with(')')) return std::nullopt;
      const std::string count(inside.substr(0, inside.size() - 1));
      if (!absl::SimpleAtoi(count, &times) || times < 1) return std::nullopt;
      entry = entry.substr(0, open);
    }
    int tasks = 0;
    if (!absl::SimpleAtoi(std::string(entry), &tasks) || tasks < 1) return std::nullopt;
    if (node - first < times) return std::min(tasks, kMaxRanks);
    first += times;
  }
  return std::nullopt;
}

std::optional<NodeRanks> Ranks::OfSlurm() {
  if (Value("SLURM_STEP_ID") == nullptr && Value("SLURM_STEPID") == nullptr) return std::nullopt;
  const std::optional<int> rank = Number("SLURM_LOCALID", 0);
  if (!rank) return std::nullopt;
  NodeRanks ranks{*rank, 0, "Slurm", ""};
  const char* size_name = "SLURM_STEP_TASKS_PER_NODE";
  if (const char* const list = Value(size_name)) {
    const std::optional<int> tasks = TasksOfNode(list, Number("SLURM_NODEID", 0).value_or(0));
    if (tasks) return Checked({*rank, *tasks, "Slurm", ""}, "SLURM_LOCALID", size_name);
    Refuse(absl::StrCat(size_name, "=", list), "a list such as 4(x2),3 with an entry for SLURM_NODEID");
  }
  size_name = "SLURM_NTASKS_PER_NODE";
  ranks.size = Number(size_name, 1).value_or(0);
  return Checked(ranks, "SLURM_LOCALID", size_name);
}

// Takes the number from the launcher around a script that has copied its rank from there.
NodeRanks WithOuter(Ranks* reader, NodeRanks inner) {
  for (const Launcher& outer : std::span(kLaunchers).subspan(kOuter)) {
    const std::optional<NodeRanks> ranks = reader->Of(outer);
    if (ranks && ranks->rank == inner.rank) return *ranks;
  }
  const std::optional<NodeRanks> slurm = reader->OfSlurm();
  return slurm && slurm->rank == inner.rank ? *slurm : inner;
}

NodeRanks Innermost(Ranks* reader) {
  for (const Launcher& launcher : kLaunchers) {
    std::optional<NodeRanks> ranks = reader->Of(launcher);
    if (!ranks) continue;
    return launcher.size == nullptr ? WithOuter(reader, *std::move(ranks)) : *std::move(ranks);
  }
  return reader->OfSlurm().value_or(NodeRanks{});
}

}  // namespace

NodeRanks ReadNodeRanks(const VariableSource& variables, std::vector<std::string>* warnings) {
  Ranks reader(variables, warnings);
  NodeRanks ranks = Innermost(&reader);
  ranks.job = reader.Job();
  // A single process for each node or container often starts the others itself (spawn).
  if (ranks.size == 1) ranks.size = 0;
  return ranks;
}

}  // namespace spillway::integration
