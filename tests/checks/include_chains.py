"""Checks that no includes go in a circle, neither between files nor between folders, and prints the longest chains.

A header and the source of the same name are one unit. A chain is counted in the units of a module, and is followed
through the folders that the module is made of. A module that MOST names fails when its longest chain, or the number of
its units, grows past what stands there.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import common


@dataclass(frozen=True)
class Module:
    folders: tuple
    chain: int  # units on the longest chain, at most
    units: int  # units, at most; 0: any number


MOST = (
    Module(("integration/hooks", "integration/escape", "integration/prediction"), chain=9, units=32),
    Module(("allocator/residency",), chain=10, units=44),
    Module(("policy/bound", "policy/model", "policy/offline", "policy/planner", "policy/simulator", "policy/trace"), chain=7, units=0),
    Module(("policy/estimate",), chain=8, units=0),
)
ENDINGS = (".h", ".hpp", ".c", ".cc", ".cpp")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def unit_of(path):
    return path.with_suffix("").as_posix()


def unit_edges(root):
    """Unit -> the units of the tree that it includes, itself left out."""
    files = [path for path in common.source_files(root) if path.suffix in ENDINGS]
    edges = {unit_of(path): set() for path in files}
    for path in files:
        included = {unit_of(Path(name)) for name in INCLUDE.findall(common.read(root, path))}
        edges[unit_of(path)] |= included & edges.keys() - {unit_of(path)}
    return edges


def folder_edges(edges):
    """Folder -> the other folders whose files its files include."""
    folders = {}
    for unit, included in edges.items():
        here = unit.rpartition("/")[0]
        folders.setdefault(here, set()).update({other.rpartition("/")[0] for other in included} - {here})
    return folders


def circles(edges):
    """The strongly connected components of more than one node, each sorted (Tarjan 1972, with a stack of our own)."""
    order, lowest, open_nodes, found = {}, {}, [], []
    for start in sorted(edges):
        work = [] if start in order else [(start, None)]
        while work:
            node, rest = work.pop()
            if rest is None:
                order[node] = lowest[node] = len(order)
                open_nodes.append(node)
                rest = iter(sorted(edges[node]))
            for other in rest:
                if other not in order:
                    work += [(node, rest), (other, None)]
                    break
                if other in open_nodes:
                    lowest[node] = min(lowest[node], lowest[other])
            else:
                if lowest[node] == order[node]:
                    cut = open_nodes.index(node)
                    members, open_nodes[cut:] = open_nodes[cut:], []
                    if len(members) > 1:
                        found.append(sorted(members))
                if work:
                    above = work[-1][0]
                    lowest[above] = min(lowest[above], lowest[node])
    return found


def longest_chain(edges, folders):
    """The chain with the most units of `folders`; empty when there are none. The includes must be free of circles."""
    inside = {unit for unit in edges if unit.startswith(tuple(f"{folder}/" for folder in folders))}
    best = {}

    def chain(unit):
        if unit not in best:
            below = max((chain(other) for other in sorted(edges[unit])), key=len, default=())
            best[unit] = (unit, *below) if unit in inside else below
        return best[unit]

    return max((chain(unit) for unit in sorted(inside)), key=len, default=()), len(inside)


def find_problems(root: Path, modules=MOST):
    edges = unit_edges(root)
    problems = [f"files include in a circle: {', '.join(circle)}" for circle in circles(edges)]
    problems += [f"folders include in a circle: {', '.join(circle)}" for circle in circles(folder_edges(edges))]
    if circles(edges):
        return problems
    for module in modules:
        chain, units = longest_chain(edges, module.folders)
        name = " + ".join(module.folders)
        print(f"{name}: {units} units, the longest chain has {len(chain)}: {' > '.join(chain)}")
        if len(chain) > module.chain:
            problems.append(f"{name}: the longest chain of includes has {len(chain)} units, at most {module.chain}")
        if module.units and units > module.units:
            problems.append(f"{name}: {units} units, at most {module.units}")
    return problems


if __name__ == "__main__":
    common.run_check(__doc__, lambda args: find_problems(args.root))
