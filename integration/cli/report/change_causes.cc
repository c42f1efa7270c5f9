#include "integration/cli/report/change_causes.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "integration/settings/environment.h"

namespace spillway::integration {
namespace {

constexpr char kForMemory[] = "lost for GPU memory to become free";
constexpr char kForBytes[] = "lost for bytes to come back";

// Follows chains of consequences: settings and machine -> memory -> bytes -> lost time -> an iteration. Each
// function looks back by one link, and adds the link before that in the same sentence if there is one.
class Causes {
 public:
  explicit Causes(const RunChanges& changes) : changes_(changes) {}

  std::string Of(const Change& change) const {
    const std::string& key = change.key;
    if (key == "iteration_seconds") return Iteration(change);
    if (key == "ideal_seconds") return Kernels();
    if (key == "bound_seconds") return Bound(change);
    if (key == "percent_of_bound") return Share(change);
    if (key == "lost_percent" || absl::StartsWith(key, "lost ")) return Lost(change);
    if (key == "own_pauses_seconds") return Pauses();
    if (key == "in_time_percent") return InTime(change);
    if (absl::EndsWith(key, "_to_host_bytes") || absl::EndsWith(key, "_to_gpu_bytes") ||
        absl::EndsWith(key, "_to_disk_bytes"))
      return Bytes(change);
    if (key == "peak_live_bytes") return Peak();
    if (key == "peak_bytes")
      return FirstOf({Because("budget_bytes", Way(change)), Because("peak_live_bytes", Way(change))});
    if (key == "budget_bytes")
      return FirstOf({Setting("gpu_memory"), Machine("memory of the device"), Machine("device")});
    if (key == "host_capacity_bytes") return FirstOf({Setting("host_memory"), Machine("host")});
    if (key == "disk_capacity_bytes")
      return FirstOf({Setting("dirs"), Machine("spill directories"), More(change)});
    return Rate(change);
  }

 private:
  // Returns +1 if the change is notable and upward, -1 if downward, 0 if neither, or not known.
  static int Way(const Change& change) {
    if (!change.IsNotable()) return 0;
    return *change.Absolute() > 0 ? 1 : -1;
  }
  int Way(const char* key) const {
    const Change* change = changes_.Find(key);
    return change == nullptr ? 0 : Way(*change);
  }

  static std::string FirstOf(std::initializer_list<std::string> causes) {
    for (const std::string& cause : causes) {
      if (!cause.empty()) return cause;
    }
    return "";
  }

  // Returns "GPU budget was 16.0 GiB instead of 20.0 GiB" if it went that way.
  std::string Because(const char* key, int way) const {
    const Change* change = changes_.Find(key);
    if (change == nullptr || way == 0 || Way(*change) != way) return "";
    return absl::StrCat(change->label, " was ", Shown(*change->after, change->unit), " instead of ",
                        Shown(*change->before, change->unit));
  }

  static std::string Find(const std::vector<TextChange>& list, const std::string& what) {
    const auto found = std::ranges::find(list, what, &TextChange::what);
    if (found == list.end()) return "";
    const auto shown = [](const std::string& text) { return text.empty() ? "not given" : text; };
    return absl::StrCat(shown(found->after), " instead of ", shown(found->before));
  }
  std::string Setting(const std::string& name) const {
    const std::string found = Find(changes_.settings, name);
    return found.empty() ? "" : absl::StrCat(VariableOf(name), " was ", found);
  }
  std::string Machine(const std::string& what) const {
    const std::string found = Find(changes_.machine, what);
    return found.empty() ? "" : absl::StrCat(what, ": ", found);
  }
  std::string Command() const {
    return Find(changes_.job, "command").empty() ? "" : "another command, see the runs";
  }

  // Returns `cause` with its own reason behind it.
  static std::string With(const std::string& cause, const std::string& why) {
    return cause.empty() || why.empty() ? cause : absl::StrCat(cause, ", since ", why);
  }

  // Names the part of an iteration that grew or shrank most, in the direction of the whole.
  std::string Iteration(const Change& change) const {
    if (changes_.within_spread) return "within the variation of the iterations of each run";
    const int way = Way(change);
    double most = 0;
    std::string name, why;
    const auto look = [&](const Known& before, const Known& after, const std::string& part,
                          const std::string& its_cause) {
      if (!before || !after || (*after - *before) * way <= most) return;
      most = (*after - *before) * way;
      name = part;
      why = its_cause;
    };
    const IterationParts &before = changes_.before, &after = changes_.after;
    look(before.kernels_s, after.kernels_s, "kernels alone", Kernels());
    look(before.pauses_s, after.pauses_s, "the job's own pauses", "");
    for (const ChangeGroup& group : changes_.groups) {
      if (group.key != "lost") continue;
      for (const Change& one : group.changes) {
        if (absl::StartsWith(one.key, "lost "))
          look(one.before, one.after, absl::StrCat("the GPU ", one.label), Lost(one));
      }
    }
    if (name.empty()) return "";
    return With(absl::StrCat(Shown(most, Unit::kSeconds), " of it: ", name), why);
  }

  std::string Kernels() const {
    if (Way("ideal_seconds") == 0) return "";
    return FirstOf({Machine("device"), Command(), Machine("framework"), Machine("driver"), Machine("host"),
                    "nothing else that the files know differs: clocks, or other work on the GPU"});
  }

  static std::string Pauses() {
    return "the job's own: host, data, waits for other ranks; Spillway has no part in it";
  }

  std::string Bound(const Change& change) const {
    const int way = Way(change);
    return FirstOf({Because("ideal_seconds", way), With(Because("budget_bytes", -way), Setting("gpu_memory")),
                    Because("peak_live_bytes", way), Because("host_capacity_bytes", -way), SlowerRate(way)});
  }

  std::string Share(const Change& change) const {
    const int way = Way(change);
    return FirstOf(
        {Because("lost_percent", -way), Because("own_pauses_seconds", -way), Because("bound_seconds", way)});
  }

  // Returns the first rate that went against `way`, with its own cause.
  std::string SlowerRate(int way) const {
    for (const char* key : {"disk_in", "disk_out", "link_in", "link_out", "host_in", "host_out"}) {
      if (const std::string found = Because(key, -way); !found.empty())
        return With(found, Rate(*changes_.Find(key)));
    }
    return "";
  }

  // Explains time for which the GPU waited: more bytes, slower transfers, less memory; or kernels that hide
  // less of them.
  std::string Lost(const Change& change) const {
    const int way = Way(change);
    if (way == 0) return "";
    const bool for_memory = change.key == kForMemory, for_bytes = change.key == kForBytes;
    std::string moved;
    const auto look = [&](const char* key) {
      if (moved.empty() && Way(key) == way) moved = With(Because(key, way), BytesWhy(*changes_.Find(key)));
    };
    if (!for_memory) {
      look("disk_to_gpu_bytes");
      look("host_to_gpu_bytes");
    }
    if (!for_bytes) {
      look("gpu_to_disk_bytes");
      look("gpu_to_host_bytes");
    }
    return FirstOf({moved, SlowerRate(way), Because("budget_bytes", -way), Because("ideal_seconds", -way)});
  }

  std::string Bytes(const Change& change) const { return BytesWhy(change); }

  // The traffic of a tier grows if the GPU has less of the job, or if the other tier takes less.
  std::string BytesWhy(const Change& change) const {
    const int way = Way(change);
    const bool disk = absl::StrContains(change.key, "disk");
    const int host = Way("host_capacity_bytes");
    if (host != 0 && host == (disk ? -way : way)) {
      const std::string cause = Because("host_capacity_bytes", host);
      return With(cause, Setting("host_memory"));
    }
    return FirstOf({With(Because("budget_bytes", -way), Setting("gpu_memory")),
                    With(Because("peak_live_bytes", way), Command()), Setting("dirs"), Setting("policy"),
                    Setting("write_budget"), Command()});
  }

  std::string InTime(const Change& change) const {
    const int way = Way(change);
    return FirstOf({Because("disk_to_gpu_bytes", -way), SlowerRate(-way), Because("host_to_gpu_bytes", -way),
                    Because("budget_bytes", way), Because("ideal_seconds", way)});
  }

  std::string Peak() const {
    return FirstOf({Command(), Machine("framework"),
                    "the job itself, by what its files of settings or its data are: nothing else differs"});
  }

  std::string More(const Change& change) const { return Because("peak_live_bytes", Way(change)); }

  std::string Rate(const Change& change) const {
    if (absl::StrContains(change.key, "disk"))
      return FirstOf({Machine("spill directories"), Machine("trouble of drives"), Setting("encrypt"),
                      Setting("checksum"), Machine("host"),
                      "the same drives: other work on them, or a drive that grows slower as it fills"});
    return FirstOf({Machine("device"), Machine("host"),
                    Find(changes_.job, "ranks on the node").empty()
                        ? ""
                        : "another number of ranks shares the host's memory",
                    "the same machine: other traffic on its link or in its memory"});
  }

  const RunChanges& changes_;
};

}  // namespace

void FindCauses(RunChanges* changes) {
  const RunChanges known = *changes;
  const Causes causes(known);
  for (ChangeGroup& group : changes->groups) {
    for (Change& change : group.changes) {
      if (change.IsNotable()) change.cause = causes.Of(change);
    }
  }
}

}  // namespace spillway::integration
