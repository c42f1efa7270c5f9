#include "integration/cli/line_chart.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace spillway::integration {
namespace {

constexpr double kWidth = 760, kHeight = 340;
constexpr double kLeft = 64, kRight = 24, kTop = 62, kBottom = 52;
constexpr size_t kMostTicks = 11;  // of the x axis

// 1, 2 or 5 times a power of ten, at least `least`.
double RoundDistance(double least) {
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least) return factor * power;
  }
  return 10 * power;
}

class Drawing {
 public:
  explicit Drawing(const LineChart& chart) : chart_(chart) {
    double greatest = 0;
    for (const ChartLine& line : chart.lines) {
      for (const auto& value : line.values) greatest = std::max(greatest, value.value_or(0));
    }
    y_distance_ = RoundDistance(chart.y_most.value_or(greatest > 0 ? greatest : 1) / 5);
    y_most_ = chart.y_most.value_or(y_distance_ * std::max(1.0, std::ceil(greatest / y_distance_)));
    first_ = chart.x.front();
    span_ = chart.x.back() - first_;
  }

  std::string Svg() {
    absl::StrAppendFormat(&svg_, "<svg viewBox=\"0 0 %g %g\" role=\"img\" aria-label=\"%s\">\n", kWidth,
                          kHeight, HtmlEscape(chart_.title));
    Text(kLeft, 20, "start", "title", chart_.title);
    DrawYAxis();
    DrawXAxis();
    for (size_t l = 0; l < chart_.lines.size(); ++l) DrawLine(l);
    DrawGaps();
    return absl::StrCat(svg_, "</svg>\n");
  }

 private:
  double X(double value) const {
    const double width = kWidth - kLeft - kRight;
    return kLeft + (span_ > 0 ? (value - first_) / span_ * width : width / 2);
  }
  double Y(double value) const { return kHeight - kBottom - value / y_most_ * (kHeight - kTop - kBottom); }

  void Text(double x, double y, const char* anchor, const char* kind, const std::string& text) {
    absl::StrAppendFormat(&svg_, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" class=\"%s\">%s</text>\n", x,
                          y, anchor, kind, HtmlEscape(text));
  }

  void DrawYAxis() {
    for (int i = 0; i * y_distance_ <= y_most_ * 1.0001; ++i) {
      const double y = Y(i * y_distance_);
      absl::StrAppendFormat(&svg_, "<line x1=\"%g\" x2=\"%g\" y1=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n",
                            kLeft, kWidth - kRight, y, y, i == 0 ? "axis" : "grid");
      Text(kLeft - 8, y + 4, "end", "tick", absl::StrFormat("%g", i * y_distance_));
    }
    const double middle = (kTop + kHeight - kBottom) / 2;
    absl::StrAppendFormat(
        &svg_,
        "<text transform=\"translate(16 %g) rotate(-90)\" text-anchor=\"middle\" class=\"name\">%s</text>\n",
        middle, HtmlEscape(chart_.y_title));
  }

  void DrawXAxis() {
    const size_t every = (chart_.x.size() + kMostTicks - 1) / kMostTicks;
    for (size_t i = 0; i < chart_.x.size(); i += every)
      Text(X(chart_.x[i]), kHeight - kBottom + 18, "middle", "tick", absl::StrFormat("%.4g", chart_.x[i]));
    Text((kLeft + kWidth - kRight) / 2, kHeight - 10, "middle", "name", chart_.x_title);
  }

  void DrawLine(size_t number) {
    const ChartLine& line = chart_.lines[number];
    std::string path, marks;
    bool pen_down = false;
    for (size_t i = 0; i < chart_.x.size(); ++i) {
      const std::optional<double>& value = line.values[i];
      if (value) {
        const double x = X(chart_.x[i]), y = Y(std::min(*value, y_most_));
        absl::StrAppendFormat(&path, "%s%.1f %.1f", pen_down ? "L" : "M", x, y);
        absl::StrAppendFormat(
            &marks, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\"><title>%s: %.2f at %g</title></circle>", x, y,
            HtmlEscape(line.name), *value, chart_.x[i]);
      }
      pen_down = value.has_value();
    }
    const double key = kLeft + 200 * static_cast<double>(number);
    absl::StrAppendFormat(
        &svg_,
        "<g class=\"line%d\"><path d=\"%s\"/>%s<path d=\"M%g 38h26\"/><circle cx=\"%g\" cy=\"38\" "
        "r=\"4\"/></g>\n",
        number, path, marks, key, key + 13);
    Text(key + 34, 42, "start", "tick", line.name);
  }

  // Where no line has a value.
  void DrawGaps() {
    for (size_t i = 0; i < chart_.x.size(); ++i) {
      const bool any = std::any_of(chart_.lines.begin(), chart_.lines.end(),
                                   [i](const ChartLine& line) { return line.values[i].has_value(); });
      if (any) continue;
      absl::StrAppendFormat(&svg_,
                            "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" "
                            "class=\"none\">\u00d7<title>%s</title></text>\n",
                            X(chart_.x[i]), Y(0) - 4, HtmlEscape(chart_.gap_words));
    }
  }

  const LineChart& chart_;
  double y_distance_ = 1;  // of the ticks
  double y_most_ = 1, first_ = 0, span_ = 0;
  std::string svg_;
};

}  // namespace

std::string SvgOf(const LineChart& chart) { return chart.x.empty() ? "" : Drawing(chart).Svg(); }

std::string HtmlEscape(const std::string& text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

}  // namespace spillway::integration
