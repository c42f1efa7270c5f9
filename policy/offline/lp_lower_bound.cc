#include "policy/offline/lp_lower_bound.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace spillway::policy {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();
constexpr int kScalings = 10;
constexpr int kPowers = 30;         // rounds in which the matrix's norm is found
constexpr double kReach = 0.95;     // part of the longest stride that converges
constexpr uint64_t kCheck = 64;     // rounds between two checks of the error
constexpr double kFeasible = 1e-4;  // for a solution's rows: anything less counts as rounding
// Restarts (arXiv 2106.04756, section 4): when the error has fallen by much, when it has fallen and grows
// again, and when a stretch has become long.
constexpr double kMuchLess = 0.2, kLess = 0.8, kLongStretch = 0.36;

using Vector = std::vector<double>;

double Square(double value) { return value * value; }

double Norm(const Vector& vector) {
  double sum = 0;
  for (double one : vector) sum += Square(one);
  return std::sqrt(sum);
}

double Distance(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += Square(a[i] - b[i]);
  return std::sqrt(sum);
}

// A matrix by its lines, which are rows or columns.
class Lines {
 public:
  Lines(size_t lines, const std::vector<int>& line, const std::vector<int>& place, const Vector& values)
      : starts_(lines + 1, 0), places_(values.size()), values_(values.size()) {
    for (int one : line) ++starts_[static_cast<size_t>(one) + 1];
    for (size_t i = 0; i < lines; ++i) starts_[i + 1] += starts_[i];
    std::vector<size_t> next(starts_.begin(), starts_.end() - 1);
    for (size_t e = 0; e < values.size(); ++e) {
      const size_t at = next[static_cast<size_t>(line[e])]++;
      places_[at] = static_cast<size_t>(place[e]);
      values_[at] = values[e];
    }
  }

  double Times(size_t line, const Vector& vector) const {
    double sum = 0;
    for (size_t e = starts_[line]; e < starts_[line + 1]; ++e) sum += values_[e] * vector[places_[e]];
    return sum;
  }

 private:
  std::vector<size_t> starts_, places_;
  Vector values_;
};

// Multiplies rows and columns by factors that bring the matrix's entries near to 1. The value stays as it is.
LpProblem Scaled(LpProblem problem) {
  for (int round = 0; round <= kScalings; ++round) {
    // The last scaling is by sums, after Pock and Chambolle (2011); the others are by the greatest entry.
    const bool by_sum = round == kScalings;
    Vector rows(problem.row_lower.size(), 0), columns(problem.cost.size(), 0);
    const auto add = [by_sum](double value, double* to) {
      *to = by_sum ? *to + value : std::max(*to, value);
    };
    for (size_t e = 0; e < problem.values.size(); ++e) {
      add(std::abs(problem.values[e]), &rows[static_cast<size_t>(problem.rows[e])]);
      add(std::abs(problem.values[e]), &columns[static_cast<size_t>(problem.columns[e])]);
    }
    for (Vector* factors : {&rows, &columns}) {
      for (double& one : *factors) one = one > 0 ? 1 / std::sqrt(one) : 1;
    }
    for (size_t e = 0; e < problem.values.size(); ++e)
      problem.values[e] *=
          rows[static_cast<size_t>(problem.rows[e])] * columns[static_cast<size_t>(problem.columns[e])];
    for (size_t i = 0; i < rows.size(); ++i) {
      problem.row_lower[i] *= rows[i];
      problem.row_upper[i] *= rows[i];
    }
    for (size_t j = 0; j < columns.size(); ++j) {
      problem.cost[j] *= columns[j];
      problem.lower[j] /= columns[j];
      problem.upper[j] /= columns[j];
    }
  }
  return problem;
}

class Search {
 public:
  Search(const LpProblem& problem, const LowerBoundOptions& options)
      : problem_(Scaled(problem)),
        options_(options),
        rows_(problem.row_lower.size(), problem_.rows, problem_.columns, problem_.values),
        columns_(problem.cost.size(), problem_.columns, problem_.rows, problem_.values),
        per_round_(2 * problem.values.size() + 4 * (problem.cost.size() + problem.row_lower.size())),
        cost_norm_(Norm(problem_.cost)) {
    for (size_t i = 0; i < problem_.row_lower.size(); ++i) {
      // A side that does not limit counts as 0.
      const double lower = std::isfinite(problem_.row_lower[i]) ? problem_.row_lower[i] : 0;
      const double upper = std::isfinite(problem_.row_upper[i]) ? problem_.row_upper[i] : 0;
      sides_norm_ += Square(std::max(std::abs(lower), std::abs(upper)));
    }
    sides_norm_ = std::sqrt(sides_norm_);
    if (cost_norm_ > 0 && sides_norm_ > 0) weight_ = cost_norm_ / sides_norm_;
  }

  LowerBound Run() {
    const size_t rows = problem_.row_lower.size(), columns = problem_.cost.size();
    stride_ = kReach / MatrixNorm();
    now_ = {Vector(columns), Vector(rows, 0)};
    for (size_t j = 0; j < columns; ++j) now_.x[j] = std::clamp(0.0, problem_.lower[j], problem_.upper[j]);
    bar_.resize(columns);
    Restart(now_);
    found_.value = -kUnlimited;
    for (uint64_t round = 1; found_.work < options_.work && !found_.is_near; ++round) {
      Advance();
      found_.work += per_round_;
      if (round % kCheck == 0) Check(round);
    }
    return found_;
  }

 private:
  struct Point {
    Vector x, y;  // values of columns, prices of rows
  };
  struct Standing {
    double bound = 0, objective = 0;
    double rows_left = 0;  // by how much the rows are missed, as a part of their sides
    double error = 0;      // of all conditions of the best solution together
  };

  // Returns the greatest singular value, by powers.
  double MatrixNorm() const {
    Vector x(problem_.cost.size(), 1), y(problem_.row_lower.size());
    double square = 1;
    for (int i = 0; i < kPowers; ++i) {
      for (size_t r = 0; r < y.size(); ++r) y[r] = rows_.Times(r, x);
      for (size_t j = 0; j < x.size(); ++j) x[j] = columns_.Times(j, y);
      square = Norm(x);
      if (square == 0) return 1;
      for (double& one : x) one /= square;
    }
    return std::sqrt(square);
  }

  void Advance() {
    const double along_x = stride_ / weight_, along_y = stride_ * weight_;
    for (size_t j = 0; j < now_.x.size(); ++j) {
      const double to = std::clamp(now_.x[j] - along_x * (problem_.cost[j] - columns_.Times(j, now_.y)),
                                   problem_.lower[j], problem_.upper[j]);
      bar_[j] = 2 * to - now_.x[j];
      now_.x[j] = to;
      sum_.x[j] += to;
    }
    for (size_t i = 0; i < now_.y.size(); ++i) {
      const double lower = problem_.row_lower[i], upper = problem_.row_upper[i];
      const double is = rows_.Times(i, bar_);
      double price = now_.y[i] + along_y * (std::clamp(is - now_.y[i] / along_y, lower, upper) - is);
      // The price of a side that does not limit is 0; rounding would make the bound infinite.
      if (lower == -kUnlimited) price = std::min(price, 0.0);
      if (upper == kUnlimited) price = std::max(price, 0.0);
      now_.y[i] = price;
      sum_.y[i] += price;
    }
    ++length_;
  }

  // The bound is the Lagrangian's: each column's remaining cost times its best value, and the prices times
  // the sides that limit.
  Standing Judge(const Point& point) const {
    Standing standing;
    double columns_left = 0, rows_left = 0;
    for (size_t j = 0; j < point.x.size(); ++j) {
      const double lower = problem_.lower[j], upper = problem_.upper[j], x = point.x[j];
      const double left = problem_.cost[j] - columns_.Times(j, point.y);
      standing.bound += left * (left > 0 ? lower : upper);
      standing.objective += problem_.cost[j] * x;
      columns_left += Square(std::clamp(x - left, lower, upper) - x);
    }
    for (size_t i = 0; i < point.y.size(); ++i) {
      const double lower = problem_.row_lower[i], upper = problem_.row_upper[i], price = point.y[i];
      if (price != 0) standing.bound += price * (price > 0 ? lower : upper);
      const double is = rows_.Times(i, point.x);
      rows_left += Square(is - std::clamp(is, lower, upper));
    }
    standing.rows_left = std::sqrt(rows_left) / (1 + sides_norm_);
    const double gap =
        (standing.objective - standing.bound) / (1 + std::abs(standing.objective) + std::abs(standing.bound));
    standing.error = std::sqrt(Square(weight_ * standing.rows_left) + Square(gap) +
                               columns_left / Square((1 + cost_norm_) * weight_));
    return standing;
  }

  void Check(uint64_t round) {
    Point average = sum_;
    for (Vector* vector : {&average.x, &average.y}) {
      for (double& one : *vector) one /= static_cast<double>(length_);
    }
    const Standing here = Judge(now_), there = Judge(average);
    found_.work += 2 * per_round_;
    found_.value = std::max({found_.value, here.bound, there.bound});
    const bool averaged = there.error < here.error;
    const Standing& better = averaged ? there : here;
    found_.is_near =
        found_.value >= options_.enough ||
        (better.rows_left <= kFeasible && std::abs(better.objective - found_.value) <= options_.near);
    const bool restart = better.error <= kMuchLess * error_at_start_ ||
                         (better.error <= kLess * error_at_start_ && better.error > error_before_) ||
                         static_cast<double>(length_) >= kLongStretch * static_cast<double>(round);
    error_before_ = better.error;
    if (!restart) return;
    const double by_x = Distance(averaged ? average.x : now_.x, start_.x);
    const double by_y = Distance(averaged ? average.y : now_.y, start_.y);
    if (by_x > 0 && by_y > 0) weight_ = std::sqrt(by_y / by_x * weight_);
    Restart(averaged ? average : now_);
    error_at_start_ = error_before_ = Judge(now_).error;  // with the new weight
  }

  void Restart(const Point& from) {
    start_ = from;
    now_ = start_;
    sum_ = {Vector(from.x.size(), 0), Vector(from.y.size(), 0)};
    length_ = 0;
  }

  const LpProblem problem_;
  const LowerBoundOptions options_;
  const Lines rows_, columns_;
  const uint64_t per_round_;
  const double cost_norm_;
  double sides_norm_ = 0;
  double stride_ = 0;
  double weight_ = 1;  // of moves along prices, relative to those along values
  Point now_, start_, sum_;
  Vector bar_;
  uint64_t length_ = 0;  // rounds since the restart
  double error_at_start_ = kUnlimited, error_before_ = kUnlimited;
  LowerBound found_;
};

}  // namespace

LowerBound FindLowerBound(const LpProblem& problem, const LowerBoundOptions& options) {
  return Search(problem, options).Run();
}

}  // namespace spillway::policy
