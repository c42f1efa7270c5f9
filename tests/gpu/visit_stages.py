"""The rows of each stage of a GPU session, as data, in the order of what decides.

What a row is tried with stands in it; how it is run and judged stands in visit_facts.py, visit_plain.py and visit_jobs.py. Sizes
are the device's: `large`, and `small` for one of a few hundred MiB, where generated kernels and fused attention are left out.
"""

import dataclasses
import json
import os

import visit_facts as facts
import visit_plain as plain
import visit_rows as rows
from visit_facts import Cases, Fact, SelfTest
from visit_jobs import ROOT, Case, Way, job

HERE = ROOT / "tests" / "gpu"
# A GPT of several GB, and one for a small device; likewise the others.
SIZES = {
    "large": {
        "gpt": "--width 1280 --layers 12 --heads 20 --sequence 512 --batch 12 --steps 4",
        "llama": "--steps 3",
        "resnet": "--steps 3",
    },
    "small": {
        "gpt": "--width 512 --layers 3 --heads 8 --sequence 64 --batch 16 --steps 2",
        "llama": "--width 512 --layers 3 --sequence 64 --batch 4 --vocabulary 2048 --steps 2 --autocast 0",
        "resnet": "--width 64 --stages 3 --picture 64 --batch 32 --steps 2",
    },
}
OFFLINE = (("HF_HUB_OFFLINE", "1"), ("TOKENIZERS_PARALLELISM", "false"), ("HF_HUB_DISABLE_TELEMETRY", "1"),
           ("CUBLAS_WORKSPACE_CONFIG", ":4096:8"))  # fmt: skip
PAGES = (("llama", 2), ("gpt2", 2), ("resnet", 3), ("vit", 3), ("lora", 3), ("side_stream", 3), ("hf_trainer", 4))


@dataclasses.dataclass(frozen=True)
class Ask:
    """A row that a function of visit_facts or visit_plain fills."""

    name: str
    ask: object  # called with the session's Program, and with its Jobs where `jobs` says so
    jobs: bool = False

    def run(self, visit):
        if self.jobs or visit.jobs.wanted(self.name):
            self.ask(visit.program, *((visit.jobs,) if self.jobs else ()))


@dataclasses.dataclass(frozen=True)
class Train:
    """A training script, uncapped and in the ways that are compared with that."""

    case: Case
    ways: tuple = ()
    peers: tuple = ()  # what else one could do: cases without Spillway
    twice: bool = False  # a second uncapped run must have the same bits

    @property
    def name(self):
        return self.case.name

    def run(self, visit):
        if not visit.serves_pytorch() or not visit.jobs.wanted(self.name):
            return
        visit.jobs.reference(self.case, again=self.twice)
        for way in self.ways:
            visit.jobs.compare(self.case, way)
        for peer in self.peers:
            visit.jobs.peer(peer, self.case)


@dataclasses.dataclass(frozen=True)
class Quoted:
    """What others published of the like, as they wrote it."""

    who: str
    seconds: str  # of an iteration
    times: str  # the time without
    memory: str
    share: float  # of the memory without
    source: str


@dataclasses.dataclass(frozen=True)
class Beside:
    """A training script: uncapped, with each peer's code, and without code by Spillway in the GPU memory that each peer needed. Where
    none has run, in the share that was published."""

    case: Case
    peers: tuple  # names for table_step.py
    quoted: Quoted | None = None

    @property
    def name(self):
        return self.case.name

    def run(self, visit):
        if not visit.serves_pytorch() or not visit.jobs.wanted(self.name):
            return
        if self.quoted:
            visit.rows.add(f"{self.name}: {self.quoted.who}", rows.QUOTED, self.quoted.source, quoted=dataclasses.asdict(self.quoted))
        reference, shares = visit.jobs.reference(self.case), {}
        for peer in self.peers if reference else ():
            words = (*self.case.arguments, "--peer", peer)
            peak = visit.jobs.peer(dataclasses.replace(self.case, name=f"{self.name}: {peer}", arguments=words), self.case)
            shares |= {peer: 100 * peak / reference.keys["peak_bytes"]} if peak else {}
        if not shares and self.quoted:
            shares["published"] = 100 * self.quoted.share
        for peer, share in shares.items():
            visit.jobs.compare(self.case, Way(share, host=1.0, beside=peer))


HYBRID = Quoted("NVIDIA's hybrid optimizer", "1.678", "2.23", "10.53 of 15.24 GiB", 0.69,
                "NVIDIA-NeMo/RL#3628: one H100, the optimizer on the CPU, overlapped")  # fmt: skip
TORCHAO = Quoted("torchao's CPUOffloadOptimizer", "1.52", "1.20", "5.24 of 9.82 GB", 0.53,
                 "torchao/optim/README.md of pytorch/ao: RTX 4070 Ti SUPER, batch 32, bf16, checkpointed")  # fmt: skip
TORCHTUNE = Quoted("torchtune's OffloadActivations", "-", "1.00", "21.8 of 23.1 GiB", 0.94,
                   "README of torchtune 0.6.1: A100, Llama 3.2 3B, compiled, optimizer in the backward pass")  # fmt: skip


def gpt(size, dtype="fp32", fused=False, steps=None, feature=False, script=job.TRAIN, name=None):
    """On a small device in fp32 and with PyTorch's own attention, whatever is asked for: the stand-in's bf16 takes minutes."""
    large = size == "large"
    shown, attention = (dtype, "auto" if fused else "math") if large else ("fp32", "math")
    words = (*SIZES[size]["gpt"].split(), "--dtype", shown, "--sdpa", attention)
    name = name or f"gpt {dtype} {'fused' if fused else 'math'}" + (f", {steps} steps" if steps else "")
    name += "" if (shown, attention == "auto") == (dtype, fused) else " (played in fp32 math)"
    return Case(name, script, words + (("--steps", str(steps if large else 3)) if steps else ()), feature=feature)


def script(size, name):
    return Case(name, HERE / f"{name}_step.py", tuple(SIZES[size][name].split()))


def feature(size, name, shown=None):
    words = "--steps 4" if size == "large" else "--width 512 --layers 10 --batch 256 --steps 2"
    # A small device is the stand-in: it runs no generated kernels and has no tracing of its own.
    shown = shown or ("aot_eager" if name == "compile" and size == "small" else name)
    return Case(name, HERE / "features_step.py", (shown, *words.split()), feature=True)


def first(size):
    """What everything else rests on, and the first truth: one command of nine minutes."""
    short, long = gpt(size, "bf16", fused=True), gpt(size, "bf16", fused=True, steps=8, feature=True)
    on_cpu = gpt(size, "bf16", fused=True, steps=8, script=ROOT / "bench" / "gpu" / "save_on_cpu.py", name="save_on_cpu")
    whole = gpt(size)
    return (
        Ask("doctor", facts.doctor),
        Fact("essentials", (facts.ESSENTIALS,), facts.essential_words),
        Fact("a handle in host memory", ("host-handle",), facts.host_handle_words),
        SelfTest("driver self-test", "DriverTest.*:LookUpTest.*:ContentHashTest.*", "what the design takes for granted holds"),
        SelfTest("look-ups with Spillway", "LookUpTest.*:ContentHashTest.*", "look-ups are wrapped, the content hash is right", spillway={}),
        SelfTest("residency self-test", "*ResidencyTest.*", "four times the budget keeps every word"),
        Train(short, (Way(50),)),
        Ask("plain job", plain.in_host_memory),
        Fact("launch latency beside remapping", ("latency", "--row-seconds", "1.5"), facts.latency_words),
        Cases("calls beside one that waits", "stalls", words=facts.stall_words),
        *(Fact(f"module loading {mode}", ("loading",), facts.loading_words, 120, (("CUDA_MODULE_LOADING", mode),)) for mode in ("LAZY", "EAGER")),
        Ask("driver calls", facts.driver_calls),
        Ask("a launch", plain.launch_cost),
        Train(whole, (Way(50), Way(35)), twice=True),
        Train(long, (Way(100, host=1.0), Way(50, host=1.0, home=True), Way(35, host=1.0)), peers=(on_cpu,)),
        Train(whole, (Way(50, mode=job.CONF), Way(150, settings=(("audit", "on"),)))),
        Train(feature(size, "graphs"), (Way(50),)),
    )  # fmt: skip


def second(size):
    """Where the first found nothing wrong: what is left of the claims."""
    return (
        Train(feature(size, "compile"), (Way(70),)),
        Ask("a full GPU, default budget", facts.full_device),
        Ask("pause and resume", plain.pauses),
        Ask("plain job on disk", plain.on_disk, jobs=True),
        Train(dataclasses.replace(gpt(size), arguments=(*gpt(size).arguments, "--steps", "2"), name="gpt, 2 steps"), (Way(35, host=0.05),)),
        Train(feature(size, "profiler"), (Way(70),)),
    )  # fmt: skip


def table(size):
    """Other people's code that saves GPU memory beside none, in the same memory."""
    def case(name, model, large, small):
        # Peers compute on the host, too: they get all of it.
        words = ("--model", model, *(large if size == "large" else f"{small} --part 8 --dtype fp32 --steps 3").split())
        return Case(name, HERE / "table_step.py", words, (("OMP_NUM_THREADS", str(os.cpu_count())),))

    activations = ("save_on_cpu", "torchtune")
    return (
        Beside(case("Qwen3-0.6B", "qwen3", "--accumulation 24 --steps 8", "--sequence 256 --accumulation 2"), (), HYBRID),
        Beside(case("ViT-giant 1.1B", "vit", "--batch 32 --accumulation 6 --steps 8", "--batch 6"), ("torchao",), TORCHAO),
        Beside(case("decoder 1B", "decoder", "--batch 12 --sequence 4096 --steps 8", "--batch 1 --sequence 512"), activations, TORCHTUNE),
        Beside(case("decoder 1B that keeps activations", "decoder", "--batch 4 --sequence 2048 --checkpointed 0 --steps 8",
                    "--batch 1 --sequence 512 --checkpointed 0"), activations),
    )  # fmt: skip


def rest(size):
    """For a longer session: what decides nothing at once."""
    third_party = ROOT / "tests" / "third_party" / "observe.py"
    return (
        Cases("one handle at two addresses", "two-mappings", ("read", "write"), facts.mapping_words),
        Cases("address reservations", "reserve", ("",), facts.reservation_words),
        Cases("handles of addresses", "retain", ("",), facts.retained_words),
        Fact("copy rates by size", ("copies",), facts.copy_words, 120),
        Train(gpt(size, "bf16", fused=True), (Way(50), Way(50, settings=(("verify", "on"),)))),
        Train(script(size, "llama"), (Way(50),)),
        Train(script(size, "resnet"), (Way(50),)),
        *(Train(Case(f"third-party {page}", third_party, (page, "--steps", str(steps)), OFFLINE), (Way(50, host=0.2),)) for page, steps in PAGES),
        Cases("wrong-kind handles", "handles"),
    )


STAGES = {"first": first, "second": second, "table": table, "rest": rest}


def case_of(size, name, way):
    """The case and the way of a row of the first stage, by what its report has of them; None: there is none."""
    for row in first(size):
        if isinstance(row, Train) and row.name == name:
            for known in row.ways:
                if json.loads(json.dumps(dataclasses.asdict(known))) == way:
                    return row.case, known
    return None
