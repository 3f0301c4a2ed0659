# SPDX-License-Identifier: GPL-2.0-only
"""The recorder's budget.c, load.c and pace.c as a library: tests with arithmetic for a server."""

import ctypes
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Final

from tlstax.probes.model import Level

ROOT: Final = Path(__file__).resolve().parents[4]
NS_PER_S: Final = 1_000_000_000
NONE: Final = -1
MS: Final = 1_000_000
SECOND: Final = NS_PER_S
MARGIN, FLOOR_CPUS, LONGEST_CYCLE_NS = 0.85, 0.1, 30 * NS_PER_S
FEW_CPUS, MARGIN, CLOSE_MARGIN = 0.5, 0.85, 0.95
_SOURCES: Final = ("budget.c", "load.c", "pace.c", "failure.c")


class Overhead(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_double)
        for name in ("probes_ns", "scheduler_ns", "samples_ns", "recorder_ns", "neighbours_ns")
    )

    @property
    def total_ns(self) -> float:
        return float(sum(getattr(self, field[0]) for field in self._fields_))


class Span(ctypes.Structure):
    _fields_ = (
        ("length_ns", ctypes.c_uint64),
        ("target_cpu_ns", ctypes.c_uint64),
        ("spent", Overhead),
        ("by_level_ns", ctypes.c_double * len(Level)),
    )


class Load(ctypes.Structure):
    _fields_ = (
        ("cpus", ctypes.c_double),
        ("probes", ctypes.c_double * len(Level)),
        ("known_ns", ctypes.c_double * len(Level)),
        *(
            (name, ctypes.c_double)
            for name in (
                "scheduler",
                "neighbours",
                "samples",
                "cut_ns",
                "read_ns",
                "reading",
                "turn_ns",
                "tail_ns",
                "watch",
            )
        ),
        ("dense_count", ctypes.c_uint32),
    )

    @property
    def base(self) -> float:
        return max(float(self.cpus), FLOOR_CPUS)


class Choice(ctypes.Structure):
    _fields_ = (
        ("dense", ctypes.c_int),
        ("light", ctypes.c_int),
        ("dense_ns", ctypes.c_uint64),
        ("cycle_ns", ctypes.c_uint64),
        ("predicted", Overhead),
    )

    @property
    def is_continuous(self) -> bool:
        return bool(self.cycle_ns <= self.dense_ns)


class Account(ctypes.Structure):
    _fields_ = (("share", ctypes.c_double), ("balance_ns", ctypes.c_double))


class Step(ctypes.Structure):
    _fields_ = (
        ("level", ctypes.c_int),
        ("length_ns", ctypes.c_uint64),
        ("watch_ns", ctypes.c_uint64),
    )


class WindowRead(ctypes.Structure):
    _fields_ = (
        ("level", ctypes.c_int),
        ("length_ns", ctypes.c_uint64),
        ("cpu_ns", ctypes.c_uint64),
    )


class OwnCosts(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_double) for name in ("cut_ns", "turn_ns", "read_ns", "watch"))


class PaceState(ctypes.Structure):
    _fields_ = (
        ("most", ctypes.c_int),
        ("window_ns", ctypes.c_uint64),
        ("account", Account),
        ("load", Load),
        ("choice", Choice),
        ("step", Step),
        ("read", WindowRead),
        ("knows_reading", ctypes.c_bool),
        ("has_choice", ctypes.c_bool),
        ("allowance_ns", ctypes.c_double),
        ("rests", ctypes.c_uint32),
        ("random", ctypes.c_uint64),
    )


class Failure(ctypes.Structure):
    _fields_ = (("code", ctypes.c_int), ("text", ctypes.c_char * 512))


@cache
def library() -> Any:
    """Built once; a number that does not fit its type traps."""
    with tempfile.TemporaryDirectory(prefix="tlstax-") as folder:
        made = Path(folder, "budget.so")
        sources = [str(ROOT / "collectors/recorder" / name) for name in _SOURCES]
        subprocess.run(
            [
                *("clang", "-std=gnu11", "-D_GNU_SOURCE", "-O1", "-shared", "-fPIC", "-Wall"),
                *("-Wextra", "-Werror", "-fsanitize=undefined", "-fsanitize-trap=undefined"),
                *("-I", str(ROOT / "probes/bpf"), "-o", str(made), *sources),
            ],
            check=True,
        )
        loaded = ctypes.CDLL(str(made))
    loaded.budget_choose.argtypes = (
        *(ctypes.POINTER(Load), ctypes.c_double, ctypes.c_int, ctypes.c_uint64, ctypes.c_bool),
        ctypes.POINTER(Choice),
    )
    loaded.budget_choose.restype = ctypes.c_bool
    loaded.budget_set_floor.argtypes = (ctypes.c_double,)
    loaded.budget_refuse.argtypes = (ctypes.POINTER(Load), ctypes.c_double)
    loaded.load_learn.argtypes = (
        *(ctypes.POINTER(Load), ctypes.c_int, ctypes.POINTER(Span), ctypes.c_double),
    )
    loaded.trial_is_doubtful.argtypes = (
        *(ctypes.POINTER(Load), ctypes.c_double, ctypes.c_int, ctypes.c_uint64),
    )
    loaded.trial_is_doubtful.restype = ctypes.c_bool
    loaded.trials_join.argtypes = (ctypes.POINTER(Load), ctypes.POINTER(Load))
    loaded.spans_join.argtypes = (ctypes.POINTER(Span), ctypes.POINTER(Span))
    loaded.window_cost.argtypes = (
        *(ctypes.POINTER(Load), ctypes.c_int, ctypes.c_int, ctypes.c_uint64),
    )
    loaded.window_cost.restype = ctypes.c_double
    loaded.pace_open.argtypes = (
        *(ctypes.POINTER(PaceState), ctypes.c_double, ctypes.c_int, ctypes.c_uint64),
        ctypes.c_uint64,
    )
    loaded.pace_begin.restype = loaded.pace_overspends.restype = ctypes.c_bool
    loaded.trial_overspends.restype = ctypes.c_bool
    loaded.trial_overspends.argtypes = (ctypes.POINTER(Span), ctypes.c_double)
    loaded.pace_affords.restype = ctypes.c_bool
    loaded.pace_affords.argtypes = (ctypes.POINTER(PaceState), ctypes.c_double)
    loaded.pace_first.restype = loaded.pace_ended.restype = Step
    return loaded


def load_of(probes: tuple[float, ...], **values: float) -> Load:
    """A load that is known from a minute; what is not given is 0."""
    known_ns = (ctypes.c_double * len(Level))(*[60.0 * NS_PER_S] * len(Level))
    return Load(probes=(ctypes.c_double * len(Level))(*probes), known_ns=known_ns, **values)


def choose(
    load: Load, share: float, most: Level, window_ns: int, alternates: bool = False
) -> Choice | None:
    """What fits; None: nothing."""
    choice = Choice()
    fits = library().budget_choose(load, share, most, window_ns, alternates, choice)
    return choice if fits else None


def refusal(load: Load, share: float) -> str:
    """Why nothing fits."""
    failure = Failure.in_dll(library(), "failure")
    failure.code = 0
    library().budget_refuse(load, share)
    assert failure.code == 7
    return bytes(failure.text).decode()


def settle(account: Account, span: Span) -> None:
    """Credit and debit a span."""
    library().account_settle(ctypes.byref(account), ctypes.byref(span))


class Pace:
    """As the recorder uses it; also adds up what was earned and spent."""

    def __init__(self, share: float, most: Level, window_ns: int) -> None:
        self.state = PaceState()
        self.spent_ns = self.earned_ns = 0.0
        self.cpu_ns = 0
        library().pace_open(self.state, share, most, window_ns, 0)

    def begin(self, load: Load, trial: Span) -> bool:
        """Whether something fits."""
        self._add(trial)
        return bool(library().pace_begin(*map(ctypes.byref, (self.state, load, trial))))

    def first(self) -> Step:
        """What follows the trial."""
        step: Step = library().pace_first(ctypes.byref(self.state))
        return step

    def ended(
        self, span: Span, cut_ns: float, turn_ns: float, watch: float, read_ns: float = 0.0
    ) -> Step:
        """The next step."""
        self._add(span)
        own = OwnCosts(cut_ns, turn_ns, read_ns, watch)
        step: Step = library().pace_ended(*map(ctypes.byref, (self.state, span, own)))
        return step

    def overspends(self, span: Span) -> bool:
        """Whether the window must end."""
        return bool(library().pace_overspends(*map(ctypes.byref, (self.state, span))))

    def affords(self, cost_ns: float) -> bool:
        """Whether the account has what something more costs; below 0: that is not known."""
        return bool(library().pace_affords(self.state, cost_ns))

    def _add(self, span: Span) -> None:
        self.spent_ns += span.spent.total_ns
        floor_ns = FLOOR_CPUS * span.length_ns
        self.earned_ns += self.state.account.share * max(span.target_cpu_ns, floor_ns)
        self.cpu_ns += span.target_cpu_ns

    @property
    def spent_share(self) -> float:
        """Of the server's CPU time."""
        return self.spent_ns / self.cpu_ns

    @property
    def choice(self) -> Choice | None:
        """The present one."""
        return self.state.choice if self.state.has_choice else None

    @property
    def balance_ns(self) -> float:
        """What the account holds."""
        return float(self.state.account.balance_ns)


def busy(**changes: float) -> Load:
    """Point selects: 1.2 CPUs, 12 % for command and record probes, 8 % for scheduler events."""
    values: dict[str, float] = {
        "cpus": 1.2,
        "scheduler": 0.08,
        "samples": 0.0004,
        "cut_ns": 3 * MS,
        "turn_ns": 4 * MS,
    }
    values |= changes
    return load_of((0.0, 0.0, 0.0, 0.0, 0.0, 0.08, 0.04), **values)


def few_connects(cpus: float = 0.1, probes: float = 0.032, checks: float = 0.02) -> Load:
    """60 connections a second at 0.1 CPUs: what the probes of handshakes cost, and all else."""
    return load_of(
        (0.0, probes, checks, 0.008, 0.0, 0.02, 0.01),
        cpus=cpus,
        scheduler=0.06,
        samples=0.0003,
        watch=0.0007,
        cut_ns=1 * MS,
        turn_ns=5 * MS,
    )


def chosen(load: Load, share: float, most: Level) -> Choice:
    choice = choose(load, share, most, SECOND)
    assert choice is not None
    return choice
