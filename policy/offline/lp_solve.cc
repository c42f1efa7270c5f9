#include "policy/offline/lp_solve.h"

#include <Clp_C_Interface.h>

#include <memory>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace spillway::policy {
namespace {

struct DeleteModel {
  void operator()(Clp_Simplex* model) const { Clp_deleteModel(model); }
};
struct DeleteSolve {
  void operator()(Clp_Solve* solve) const { ClpSolve_delete(solve); }
};

// Loads the problem by columns, one after the other, as the solver takes them.
void Load(const LpProblem& problem, Clp_Simplex* model) {
  const size_t columns = problem.cost.size();
  std::vector<CoinBigIndex> starts(columns + 1, 0);
  for (int column : problem.columns) ++starts[static_cast<size_t>(column) + 1];
  std::partial_sum(starts.begin(), starts.end(), starts.begin());
  std::vector<CoinBigIndex> next(starts.begin(), starts.end() - 1);
  std::vector<int> rows(problem.rows.size());
  std::vector<double> values(problem.rows.size());
  for (size_t i = 0; i < problem.rows.size(); ++i) {
    const CoinBigIndex at = next[static_cast<size_t>(problem.columns[i])]++;
    rows[static_cast<size_t>(at)] = problem.rows[i];
    values[static_cast<size_t>(at)] = problem.values[i];
  }
  Clp_loadProblem(model, static_cast<int>(columns), static_cast<int>(problem.row_lower.size()), starts.data(),
                  rows.data(), values.data(), problem.lower.data(), problem.upper.data(), problem.cost.data(),
                  problem.row_lower.data(), problem.row_upper.data());
}

// Returns Clp's status; 4: it stopped for numerical trouble.
int Solve(const LpProblem& problem, int algorithm, int presolve, Clp_Simplex* model) {
  const std::unique_ptr<Clp_Solve, DeleteSolve> options(ClpSolve_new());
  Load(problem, model);
  Clp_setLogLevel(model, 0);
  ClpSolve_setSolveType(options.get(), algorithm, -1);
  ClpSolve_setPresolveType(options.get(), presolve, -1);
  Clp_initialSolveWithOptions(model, options.get());
  return Clp_status(model);
}

}  // namespace

absl::Status CheckLpSolver() { return absl::OkStatus(); }

absl::StatusOr<LpSolution> SolveLp(const LpProblem& problem) {
  constexpr int kDualSimplex = 0, kPrimalSimplex = 1;  // the second is the faster one on these programs
  constexpr int kPresolve = 0, kNoPresolve = 1;
  std::unique_ptr<Clp_Simplex, DeleteModel> model(Clp_newModel());
  int status = Solve(problem, kPrimalSimplex, kPresolve, model.get());
  if (status == 4) {
    model.reset(Clp_newModel());
    status = Solve(problem, kDualSimplex, kNoPresolve, model.get());
  }
  if (status == 1) return absl::FailedPreconditionError("the linear program has no solution");
  if (status != 0) return absl::InternalError(absl::StrCat("the solver stopped with status ", status));
  LpSolution solution;
  solution.objective = Clp_objectiveValue(model.get());
  const double* values = Clp_primalColumnSolution(model.get());
  solution.values.assign(values, values + problem.cost.size());
  return solution;
}

}  // namespace spillway::policy
