"""The types of spillway.stats(): the keys of docs/metrics.md, which explains them.

For type checkers, and for code that names a part of the metrics: `from spillway.stats_types import Stats, DeviceStats`.
A key that a class with total=False declares is there only where it is known. Bytes and counts are ints, times and rates
floats. tests/checks/metrics_page.py --update writes what stands between marks; stats_types_test.py keeps all of it equal to what
the engine writes.
"""

from typing import Literal, Optional, TypedDict


class StallSeconds(TypedDict):
    # stall_seconds: begin
    chunks: float
    arrival: float
    # stall_seconds: end


class LostSeconds(TypedDict):
    # lost_seconds: begin
    chunks: float
    arrival: float
    run_ahead: float
    # lost_seconds: end


class Counters(TypedDict):
    """Of all devices, and of each."""

    # residency: begin
    budget_bytes: int
    budget_in_force_bytes: int
    share_bytes: int
    idle_pauses: int
    peak_bytes: int
    live_bytes: int
    requested_bytes: int
    peak_live_bytes: int
    peak_requested_bytes: int
    resident_bytes: int
    cached_bytes: int
    chunk_bytes: int
    peak_chunk_bytes: int
    external_bytes: int
    pinned_bytes: int
    largest_set_bytes: int
    host_tier_bytes: int
    disk_tier_bytes: int
    spilled_bytes: int
    host_spilled_bytes: int
    disk_spilled_bytes: int
    demoted_bytes: int
    fetched_bytes: int
    host_fetched_bytes: int
    disk_fetched_bytes: int
    in_time_bytes: int
    prefetched_bytes: int
    prefetch_in_time_bytes: int
    launches: int
    slow_launches: int
    overlapping_launches: int
    evictions: int
    evictions_cancelled: int
    faults: int
    prefetches: int
    prefetches_cancelled: int
    clean_drops: int
    clean_drop_bytes: int
    hash_mismatches: int
    early_copies: int
    reached_launches: int
    reached_bytes: int
    reached_now_bytes: int
    soft_evictions: int
    soft_writes: int
    soft_now_bytes: int
    verified_evictions: int
    unseen_writes: int
    verified_fetches: int
    wrong_arrivals: int
    handles_remade: int
    stall_seconds: StallSeconds
    lost_seconds: LostSeconds
    throttled_seconds: float
    # residency: end
    stall_seconds_total: float
    pinned_bytes_by_reason: dict[str, int]


class Iteration(TypedDict, total=False):
    """Of the recurring iteration: each key where it is known, what moved and waited from the third in a row on."""

    # iteration: begin
    launches: float
    iterations: float
    seconds: float
    ideal_seconds: float
    bound_seconds: float
    plan_seconds: float
    # iteration: end
    # share of an iteration: begin
    spilled_bytes: int
    host_spilled_bytes: int
    disk_spilled_bytes: int
    demoted_bytes: int
    fetched_bytes: int
    host_fetched_bytes: int
    disk_fetched_bytes: int
    in_time_bytes: int
    prefetched_bytes: int
    prefetch_in_time_bytes: int
    stall_seconds: StallSeconds
    lost_seconds: LostSeconds
    throttled_seconds: float
    # share of an iteration: end
    percent_of_bound: float


class BytesPerSecond(TypedDict, total=False):
    host_out: float
    disk_out: float
    host_in: float
    disk_in: float
    host_out_both: float
    host_in_both: float


class _LinkMeasured(TypedDict):
    measurements: int
    dropped: int
    seconds: float


_LinkRates = TypedDict("_LinkRates", {"in": float, "out": float, "in_both": float, "out_both": float}, total=False)


class Link(_LinkMeasured, _LinkRates):
    pass


class ObservedBudget(TypedDict):
    percent: Optional[int]
    budget_bytes: int
    possible: bool
    least_fetched_bytes_per_iteration: int
    whole_block_fetched_bytes_per_iteration: int


class Observed(TypedDict):
    iteration_launches: int
    peak_bytes: int
    external_bytes: int
    largest_set_bytes: int
    budgets: list[ObservedBudget]


class _DeviceAlways(Counters):
    device: int
    # device: begin
    plans: int
    plan_departures: int
    plan_iteration_launches: int
    plan_readoptions: int
    plan_improvements: int
    plan_sequences: int
    plan_accesses: int
    plan_accesses_known: int
    followed_launches: int
    iteration_marks: int
    # device: end


class DeviceStats(_DeviceAlways, total=False):
    bytes_per_second: BytesPerSecond
    link: Link
    iteration: Iteration
    observed: Observed


class DirectoryStats(TypedDict):
    # directories: begin
    path: str
    engine: str
    direct: bool
    file_bytes: int
    written_bytes: int
    read_bytes: int
    written_tb_per_day: float
    errors: int
    retries: int
    mismatches: int
    quarantined_slots: int
    moved_slots: int
    closed: bool
    why_closed: str
    closures: int
    last_closure: str
    # directories: end


class WaitStats(TypedDict):
    ended: int
    seconds: float
    now: int
    longest_now_seconds: float


WaitKind = Literal["chunks", "arrival", "run_ahead", "end_of_transfer", "cache_release", "pause", "share", "audit", "disk_growth",
                   "pinning", "drive", "read_sections", "driver_call"]  # fmt: skip


class PauseStats(TypedDict):
    # pause: begin
    pauses: int
    paused_now: bool
    clean_bytes: int
    host_bytes: int
    disk_bytes: int
    dropped_bytes: int
    pausing_seconds: float
    paused_seconds: float
    # pause: end


class _StatsAlways(Counters):
    version: str
    pid: int
    seconds: float
    iterations_per_second: float
    # process: begin
    disk_written_bytes: int
    disk_read_bytes: int
    disk_capacity_bytes: int
    host_capacity_bytes: int
    unknown_kernel_launches: int
    unmatched_addresses: int
    newer_calls: int
    # process: end
    evictions_ended: str
    directories: list[DirectoryStats]
    waits: dict[WaitKind, WaitStats]
    devices: list[DeviceStats]


class Stats(_StatsAlways, total=False):
    # write budget: begin
    write_budget_bytes: int
    write_budget_left_bytes: int
    # write budget: end
    pause: PauseStats
