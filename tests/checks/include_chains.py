"""Checks that no includes go in a circle, neither between files nor between folders, and prints the longest chains.

A header and the source of the same name are one unit. No folder is more than FLOORS units high: the longest chain of its own
units, each of which includes the next. A chain of a module is followed through the folders that it is made of. A module that
MOST names fails when its longest chain, or the number of its units, grows by more than a tenth past what stands there; from
nine tenths on it is said.
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


FLOORS = 8
MOST = (
    Module(("integration/hooks", "integration/escape", "integration/prediction"), chain=9, units=32),
    Module(("allocator/residency",), chain=10, units=45),
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


def floors(edges):
    """Folder -> the longest chain of its own units."""
    return {folder: longest_chain({unit: {other for other in included if other.rpartition("/")[0] == folder}
                                   for unit, included in edges.items() if unit.rpartition("/")[0] == folder}, (folder,))[0]
            for folder in sorted({unit.rpartition("/")[0] for unit in edges})}  # fmt: skip


def find_problems(root: Path, modules=MOST):
    edges = unit_edges(root)
    problems = [f"files include in a circle: {', '.join(circle)}" for circle in circles(edges)]
    problems += [f"folders include in a circle: {', '.join(circle)}" for circle in circles(folder_edges(edges))]
    if circles(edges):
        return problems
    highest = floors(edges)
    problems += [f"{folder}: {len(chain)} floors, at most {FLOORS}: {' > '.join(unit.rpartition('/')[2] for unit in chain)}"
                 for folder, chain in highest.items() if len(chain) > FLOORS]  # fmt: skip
    print(f"floors: {', '.join(f'{folder} {len(chain)}' for folder, chain in highest.items() if len(chain) >= FLOORS - 1)}")
    for module in modules:
        chain, units = longest_chain(edges, module.folders)
        name = " + ".join(module.folders)
        near = [text for value, most, text in ((units, module.units, "units"), (len(chain), module.chain, "chain"))
                if most and common.is_near(value, most)]  # fmt: skip
        limits = f" (near its limit: {', '.join(near)})" if near else ""
        print(f"{name}: {units} units, the longest chain has {len(chain)}{limits}: {' > '.join(chain)}")
        if common.is_beyond(len(chain), module.chain):
            problems.append(f"{name}: the longest chain of includes has {len(chain)} units, more than a tenth over {module.chain}")
        if module.units and common.is_beyond(units, module.units):
            problems.append(f"{name}: {units} units, more than a tenth over {module.units}")
    return problems


if __name__ == "__main__":
    common.run_check(__doc__, lambda args: find_problems(args.root))
