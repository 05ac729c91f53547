"""What is run: commands of the command line, and scripts that follow a federation in one process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

SCRIPTED = "tests.golden.federation"
"""The module whose functions are steps of scenarios; it runs with the clocks and the randomness of `tests.golden.frozen`."""


@dataclass(frozen=True)
class Step:
    """A process.

    Args:
        words: arguments of ``codedfl``; for a script, a function of `SCRIPTED` and its arguments.
        script: whether it is a script.
        numpy_only: whether it runs without the compiled kernel.
    """

    words: tuple[str, ...]
    script: bool = False
    numpy_only: bool = False


@dataclass(frozen=True)
class Same:
    """Two folders of a scenario that must hold the same.

    Args:
        one: a folder.
        other: another one.
        files: patterns of the files that are compared.
    """

    one: str
    other: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class Scenario:
    """Processes in one folder, and what they leave there.

    Args:
        name: its name.
        covers: what it covers, in a few words.
        steps: what both trees run.
        begun: what only the tree that is compared with runs, before its own steps: the other one continues from its files.
        same: folders that must hold the same besides.
    """

    name: str
    covers: str
    steps: tuple[Step, ...]
    begun: tuple[Step, ...] = field(default=())
    same: tuple[Same, ...] = field(default=())


def cli(line: str, *, numpy_only: bool = False) -> Step:
    return Step(tuple(line.split()), numpy_only=numpy_only)


def script(*words: str) -> Step:
    return Step(words, script=True)


WITHOUT_PRIVACY = (
    "fedavg",
    "cfl-fb",
    "codedfedl",
    "dp-cfl",
    "scfl-fixed",
    "scfl",
    "momentum",
    "fed3r",
    "one-shot",
    "ccfl",
)
EVERY_SCHEME = " ".join(f"--scheme {name}" for name in WITHOUT_PRIVACY)
PRIVATE = "run --epsilon 2 --delta 1e-5 --total-time 60"
GRID = "sweep --over coding.noise_variance=0.1,1 --over fleet.straggler_ratio=0.1,0.5 --scheme scfl --scheme ccfl"

KEPT = ("results/*", "devices/*", "server/state/checkpoint-*", "server/state/uploads/*", "server/state/roster.json")
"""What an interruption between two rounds leaves no trace in."""

BETWEEN_ROUNDS = ("scfl", "ccfl", "dp-gd", "momentum", "scfl-masked", "system-scfl")
IN_A_ROUND = ("scfl", "ccfl", "dp-gd", "momentum", "system-scfl")
WHILE_UPLOADING = ("scfl", "ccfl", "ccfl-factor", "dp-gd")
"""Federations that are continued after an interruption; `tests.golden.federation.STOPS` has some more."""

SCENARIOS: Sequence[Scenario] = (
    Scenario(
        "run",
        "the default run and its page: curves, summary, details, checkpoints, models, pictures",
        (cli("run --out run"), cli("report run")),
    ),
    Scenario(
        "schemes",
        "every scheme without privacy for 20 rounds, with the kernel and on numpy; a contract, labels with noise, a trace",
        (
            cli(f"run {EVERY_SCHEME} --rounds 20 --out kernel --record-trace trace.csv --json"),
            cli(f"run {EVERY_SCHEME} --rounds 20 --out numpy --json", numpy_only=True),
            cli("run --scheme scfl --scheme ccfl --rounds 20 --trace trace.csv --out replayed --json"),
            cli("run --scheme scfl --rounds 20 --set incentive.total_reward=50 --out contract --json"),
            cli(
                "run --scheme scfl --rounds 20 --set coding.label_noise_variance=0.1 --clip-norm 1 --out labels --json"
            ),
        ),
    ),
    Scenario(
        "paper",
        "every figure and table of the paper on the embedded digits, with one seed",
        (cli("paper all --quick --seeds 1 --out paper --cache cache --json"),),
    ),
    Scenario(
        "private",
        "the private schemes in both threat models",
        (
            cli(f"{PRIVATE} --threat-model each-message --out messages"),
            cli(f"{PRIVATE} --threat-model sums-only --out sums"),
        ),
    ),
    Scenario(
        "sweep",
        "2 x 2 points with two schemes, two seeds of a run, and a page that compares them",
        (
            cli(f"{GRID} --rounds 10 --out sweep"),
            cli("run --seeds 2 --scheme fedavg --scheme scfl --rounds 10 --out seeds"),
            cli("report sweep --out sweep.html"),
            cli("report seeds/seed-0 seeds/seed-1 --out compared.html"),
        ),
    ),
    Scenario(
        "commands",
        "plan, schemes, config, privacy, theory, audit (empirical too), contract, stackelberg",
        (
            cli("plan --out plan.toml"),
            cli("plan --json"),
            cli("schemes"),
            cli("schemes --json"),
            cli("config"),
            cli("config --dataset mnist --json"),
            cli("privacy --coded-samples 1000 --epsilon 4 --delta 1e-5"),
            cli("privacy --coded-samples 1000 --epsilon 4 --delta 1e-5 --json"),
            cli("privacy --updates 50 --epsilon 2 --delta 1e-5 --json"),
            cli("theory --rounds 20 --out theory --json"),
            cli("theory --check --draws 400 --json"),
            cli("audit --out audit --json"),
            cli("audit --empirical --epsilon 1 --out messages --json"),
            cli("audit --empirical --epsilon 1 --threat-model sums-only --out sums --json"),
            cli("contract --budget 100 --devices 20 --json"),
            cli("contract table"),
            cli("stackelberg --reward 100 --json"),
        ),
    ),
    Scenario(
        "federation",
        "21 federations in one process: messages, ledgers, vaults, checkpoints, uploads, results",
        (script("federations"),),
    ),
    Scenario(
        "resume",
        "federations that the commit stopped, between rounds, in a round and while devices uploaded, continued by this tree",
        (script("continued"),),
        begun=(script("stopped"),),
        same=(
            *(Same(f"whole/{name}", f"continued/{name}-between-rounds", KEPT) for name in BETWEEN_ROUNDS),
            *(Same(f"whole/{name}", f"continued/{name}-in-a-round", ("results/*",)) for name in IN_A_ROUND),
            *(Same(f"whole/{name}", f"continued/{name}-while-uploading", ("results/*",)) for name in WHILE_UPLOADING),
        ),
    ),
    Scenario(
        "resume-run",
        "runs of nine schemes that the commit stopped after five rounds, continued by this tree",
        (script("continued_run"),),
        begun=(script("stopped_run"),),
        same=(Same("whole", "continued", ("*/curves/*", "*/models/*", "*/curves.csv", "*/details.json")),),
    ),
)
