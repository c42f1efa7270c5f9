#include "integration/cli/page/chart_parts.h"

#include <cmath>

namespace spillway::integration {

double Rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return 0;
  const double scale = std::pow(10, 5 - std::ceil(std::log10(std::abs(value))));
  return std::round(value * scale) / scale;
}

Json Values(Json rows) { return Json{{"values", std::move(rows)}}; }

Json Quantity(const std::string& field, const std::string& title) {
  return Json{{"field", field}, {"type", "quantitative"}, {"title", title}};
}

Json TimeAxis(const std::string& field, double end_s) {
  Json axis = Quantity(field, "time since the first block, s");
  axis["scale"] = {{"domain", Json::array({0, Rounded(end_s)})}, {"nice", false}};
  axis["axis"] = {{"grid", false}};
  return axis;
}

Json Colors(const std::string& field, const std::vector<LegendEntry>& names) {
  Json domain = Json::array(), range = Json::array();
  for (const LegendEntry& entry : names) {
    domain.push_back(entry.name);
    range.push_back(entry.color);
  }
  return Json{{"field", field},
              {"type", "nominal"},
              {"scale", {{"domain", std::move(domain)}, {"range", std::move(range)}}},
              {"legend", nullptr}};
}

Json Rule(double y, const LegendEntry& entry) {
  Json mark = {{"type", "rule"}, {"strokeWidth", 1.5}, {"stroke", entry.color}};
  if (entry.mark == LegendEntry::Mark::kDashes) mark["strokeDash"] = Json::array({6, 4});
  return Json{{"data", Values(Json::array({Json{{"y", Rounded(y)}}}))},
              {"mark", std::move(mark)},
              {"encoding", {{"y", Quantity("y", "")}}}};
}

}  // namespace spillway::integration
