#include "integration/cli/report/iteration_parts.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "integration/cli/page/chart_parts.h"

namespace spillway::integration {
namespace {

// The colors of lost time by cause: a report knows three causes, a later one perhaps more.
const char* const kCauseColors[] = {"var(--out)", "var(--in)", "var(--c3)", "var(--host)"};
constexpr char kKernels[] = "kernels", kPauses[] = "the job's own pauses", kUnknown[] = "not known which";

struct Piece {
  std::string name;
  double seconds = 0;
};

// Returns the pieces from left to right. The time that the parts do not add up to is a piece of its own.
std::vector<Piece> PiecesOf(const IterationParts& parts) {
  std::vector<Piece> pieces;
  double sum = 0;
  const auto add = [&](const std::string& name, double seconds) {
    const double fits = std::min(seconds, *parts.whole_s - sum);
    if (fits <= 0) return;
    pieces.push_back({name, fits});
    sum += fits;
  };
  if (parts.kernels_s) add(kKernels, *parts.kernels_s);
  for (const auto& [cause, seconds] : parts.lost_s) add("waits " + cause, seconds);
  if (parts.pauses_s) add(kPauses, *parts.pauses_s);
  if (*parts.whole_s - sum > 0.001 * *parts.whole_s) pieces.push_back({kUnknown, *parts.whole_s - sum});
  return pieces;
}

// Gives a color to each name that is drawn, in the order of the pieces.
class Palette {
 public:
  void Add(const std::string& name) {
    if (std::ranges::find(entries_, name, &LegendEntry::name) != entries_.end()) return;
    const char* color = name == kKernels   ? "var(--gpu)"
                        : name == kPauses  ? "var(--c4)"
                        : name == kUnknown ? "var(--quiet)"
                                           : kCauseColors[causes_++ % std::size(kCauseColors)];
    entries_.push_back({name, color});
  }
  const std::vector<LegendEntry>& entries() const { return entries_; }

 private:
  std::vector<LegendEntry> entries_;
  size_t causes_ = 0;
};

}  // namespace

Known IterationParts::LostSeconds() const {
  if (lost_s.empty()) return std::nullopt;
  double sum = 0;
  for (const auto& [cause, seconds] : lost_s) sum += seconds;
  return sum;
}

IterationParts PartsOf(const ReportData& data, const ReportFacts& facts) {
  IterationParts parts{facts.iteration_s, facts.ideal_s, std::nullopt, {}};
  if (!parts.whole_s) return parts;
  const ReportMetrics& metrics = data.metrics;
  if (!metrics.per_iteration.lost_seconds.empty()) {
    for (const auto& [cause, seconds] : metrics.per_iteration.lost_seconds)
      parts.lost_s.emplace_back(CauseText(cause), seconds);
  } else if (facts.seconds && *facts.seconds > 0) {
    for (const auto& [cause, seconds] : metrics.lost_seconds)
      parts.lost_s.emplace_back(CauseText(cause), seconds * *parts.whole_s / *facts.seconds);
  }
  if (const Known lost = parts.LostSeconds(); lost && parts.kernels_s)
    parts.pauses_s = std::max(0.0, *parts.whole_s - *parts.kernels_s - *lost);
  return parts;
}

std::optional<Chart> IterationPartsChart(const std::vector<std::string>& names,
                                         const std::vector<IterationParts>& parts, std::string words) {
  double most = 0;
  for (const IterationParts& one : parts) most = std::max(most, one.whole_s.value_or(0));
  if (most <= 0) return std::nullopt;
  const AxisUnit unit = AxisUnitFor(most, Unit::kSeconds);
  Palette palette;
  Json rows = Json::array(), order = Json::array();
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].whole_s) continue;
    order.push_back(names[i]);
    double from = 0;
    for (const Piece& piece : PiecesOf(parts[i])) {
      palette.Add(piece.name);
      const double to = from + piece.seconds / unit.factor;
      rows.push_back(
          Json{{"name", names[i]}, {"part", piece.name}, {"from", Rounded(from)}, {"to", Rounded(to)}});
      from = to;
    }
  }
  Json x = Quantity("from", absl::StrCat("one iteration, ", unit.name));
  x["scale"] = {{"domain", Json::array({0, Rounded(most / unit.factor * 1.02)})}, {"nice", false}};
  const Json y = {{"field", "name"},
                  {"type", "nominal"},
                  {"sort", order},
                  {"title", nullptr},
                  {"axis", {{"ticks", false}, {"labelLimit", 120}}}};
  Chart chart;
  chart.key = "parts";
  chart.title = "Where the time of an iteration goes";
  chart.words = std::move(words);
  chart.legend = palette.entries();
  chart.height = static_cast<int>(50 + 26 * order.size());
  chart.spec = Json{
      {"data", Values(std::move(rows))},
      {"mark", {{"type", "bar"}, {"height", {{"band", 0.75}}}, {"tooltip", true}}},
      {"encoding",
       {{"x", std::move(x)}, {"x2", {{"field", "to"}}}, {"y", y}, {"color", Colors("part", chart.legend)}}}};
  return chart;
}

}  // namespace spillway::integration
