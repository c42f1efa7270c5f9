#include "integration/cli/report/report_bins.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace spillway::integration {
namespace {

template <typename Join>
Series Merged(const Column& values, double every_s, size_t most, const Join& join) {
  const size_t width = std::max<size_t>(1, (values.size() + most - 1) / std::max<size_t>(1, most));
  Series series{every_s * static_cast<double>(width), {}};
  for (size_t i = 0; i < values.size(); ++i) {
    if (i % width == 0)
      series.values.push_back(values[i]);
    else
      series.values.back() = join(series.values.back(), values[i]);
  }
  return series;
}

// `sorted` is not empty.
double Quantile(const Column& sorted, double part) {
  return sorted[static_cast<size_t>(std::llround(part * static_cast<double>(sorted.size() - 1)))];
}

}  // namespace

Series MergedByMost(const Column& values, double every_s, size_t most) {
  return Merged(values, every_s, most, [](double a, double b) { return std::max(a, b); });
}

Series MergedBySum(const Column& values, double every_s, size_t most) {
  return Merged(values, every_s, most, [](double a, double b) { return a + b; });
}

Column BusyParts(const Column& start, const Column& seconds, const std::vector<bool>& wanted, double from,
                 double to, size_t count) {
  Column busy(count, 0);
  if (!(to > from) || count == 0) return busy;
  const double width = (to - from) / static_cast<double>(count);
  for (size_t i = 0; i < start.size(); ++i) {
    const double begin = std::max(start[i], from), end = std::min(start[i] + seconds[i], to);
    if (!wanted[i] || end < begin || start[i] >= to) continue;
    auto bin = std::min(count - 1, static_cast<size_t>((begin - from) / width));
    for (; bin < count && from + static_cast<double>(bin) * width < end; ++bin) {
      const double left = from + static_cast<double>(bin) * width;
      busy[bin] += std::max(0.0, std::min(end, left + width) - std::max(begin, left)) / width;
    }
  }
  for (double& part : busy) part = std::min(1.0, part);
  return busy;
}

std::vector<MoveSizeClass> MoveSizeClasses(const ReportMoves& moves) {
  struct Group {
    double bytes = 0;
    Column rates;
  };
  std::map<std::pair<size_t, int>, Group> groups;
  for (size_t i = 0; i < moves.bytes.size(); ++i) {
    if (moves.bytes[i] < 1 || moves.seconds[i] <= 0) continue;
    Group& group = groups[{moves.kind[i], static_cast<int>(std::floor(std::log2(moves.bytes[i])))}];
    group.bytes += moves.bytes[i];
    group.rates.push_back(moves.bytes[i] / moves.seconds[i]);
  }
  std::vector<MoveSizeClass> classes;
  for (auto& [key, group] : groups) {
    std::ranges::sort(group.rates);
    classes.push_back({key.first, std::exp2(key.second), static_cast<double>(group.rates.size()), group.bytes,
                       Quantile(group.rates, 0.1), Quantile(group.rates, 0.5), Quantile(group.rates, 0.9)});
  }
  return classes;
}

std::optional<size_t> IterationToShow(const ReportIterations& iterations, const ReportMoves& moves,
                                      double run_seconds) {
  if (moves.start_s.empty()) return std::nullopt;
  const auto [least, most] = std::ranges::minmax(moves.start_s);
  for (size_t i = iterations.start_s.size(); i-- > 0;) {
    const double end = iterations.start_s[i] + iterations.seconds[i];
    const bool whole = end <= run_seconds && iterations.start_s[i] >= least && iterations.start_s[i] <= most;
    if (iterations.seconds[i] > 0 && whole) return i;
  }
  return std::nullopt;
}

double Median(Column values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return Quantile(values, 0.5);
}

}  // namespace spillway::integration
