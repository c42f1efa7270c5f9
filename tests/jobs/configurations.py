"""The nine configurations in which the job must come out the same: all pairs of four choices.

Rows are those of the orthogonal array of nine runs over four columns of three levels. The fourth column, the budget,
has two levels: its third level is given to either, so no pair is lost.
"""

import dataclasses

SEEDS = (1, 2, 3)
FORMS = ("foreach", "fused", "plain")
TIERS = ("host", "both", "ssd")
BUDGETS = ("35", "smallest")


@dataclasses.dataclass(frozen=True)
class Configuration:
    name: str
    seed: int
    form: str
    budget: str  # percent of the uncapped peak, or "smallest"
    tiers: str


def all_configurations():
    rows = []
    for i in range(9):
        a, b = divmod(i, 3)
        budget = (BUDGETS * 2)[(a + 2 * b) % 3 if (a + 2 * b) % 3 < 2 else a]
        seed, form, tiers = SEEDS[a], FORMS[b], TIERS[(a + b) % 3]
        rows.append(Configuration(f"{seed}-{form}-{budget}-{tiers}", seed, form, budget, tiers))
    return rows


def ci_configurations():
    """Three of the nine with every seed, form, budget and tier among them."""
    wanted = {("seed", 1), ("form", "fused")}, {("seed", 2), ("form", "plain")}, {("seed", 3), ("form", "foreach")}
    return [row for row in all_configurations() if any(w <= set(dataclasses.asdict(row).items()) for w in wanted)]
