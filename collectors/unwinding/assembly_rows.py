# SPDX-License-Identifier: GPL-2.0-only
"""Rows for assembly of x86-64 that has no call frame information, from what its instructions do.

OpenSSL before 1.1.1 has none for all that it computes with big numbers, and such code keeps the
stack pointer of its entry in a register, then in a slot of a stack that it has moved and aligned.
An abstract interpretation follows where it is. Where ways meet, only what holds on all of them is
kept. Code that leads to each other is believed only if each of its returns finds the stack as at
an entry.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

from tlstax.collectors.unwinding.assembly_code import NOWHERE, Act, Step, dropped, steps
from tlstax.collectors.unwinding.assembly_state import RETURNING, State, meeting, rule_of
from tlstax.collectors.unwinding.row_format import (
    RSP,
    X86_REGISTERS,
    Kind,
    Rule,
    RuleKind,
    plain_row,
)

STEPS_MOST: Final = 1 << 16
"""Instructions of a file that are looked at, about a second: OpenSSL 1.0.2 has 40,000."""
BLOCKS_MOST: Final = 1 << 15
"""Blocks that are followed, each as often as what is known before it changes."""
CALLS_MOST: Final = 32
"""Functions that call each other, one in the other."""
ALL_REGISTERS: Final = frozenset(range(16)) - {RSP}
RENEWED_MOST: Final = 64
"""Places at which functions that lead to each other meet with different stack pointers."""


class Row(NamedTuple):
    """A rule that applies from an address on; none: nothing is known."""

    address: int
    rule: Rule | None


class _Flow:
    """States on the way to what does not change any more."""

    def __init__(self, entries: Iterable[int], renewed: set[int]) -> None:
        """`renewed`: blocks that are reached with different stack pointers."""
        self.states: dict[int, State] = {}
        self.entries = list(entries)
        self._renewed = renewed
        # By block, and the one that leads to it.
        self._arrivals = {entry: {NOWHERE: State()} for entry in self.entries}

    def enter(self, leader: int) -> State | None:
        """The state before a block; None if it is as before."""
        arrivals = self._arrivals[leader]
        states = [arrivals[each] for each in sorted(arrivals)]
        # A base that no instruction has.
        met = meeting(states, -2 - leader, leader in self._renewed)
        if met == self.states.get(leader):
            return None
        self.states[leader] = met
        return met.copy()

    def arrive(self, leader: int, target: int, state: State) -> None:
        """One block leads to another."""
        self._arrivals.setdefault(target, {})[leader] = state.copy()

    def differing(self) -> int | None:
        """The first block that is reached with different stack pointers, and is not known to be."""
        for leader, arrivals in sorted(self._arrivals.items()):
            first, *others = arrivals.values()
            if leader not in self._renewed and any(o.stack != first.stack for o in others):
                return leader
        return None


class Code:
    """The functions of a file without call frame information."""

    def __init__(self, read: Callable[[int], bytes], is_inside: Callable[[int], bool]) -> None:
        """read(address): code from there to the end of its gap; is_inside(address): in a gap."""
        self._read, self._is_inside = read, is_inside
        self._steps: dict[int, Step] = {}
        self._entries: set[int] = set()
        self._leaders: set[int] = set()
        self._blocks_left = BLOCKS_MOST

    def rows(self, entries: Iterable[int]) -> Iterator[Row]:
        """The rows of all that is reached from these functions, by address."""
        found: dict[int, Rule | None] = {}
        for address, state in self.followed(entries):
            found[address] = rule_of(state)
            found.setdefault(self._steps[address].after, None)
        last = None
        for address, rule in sorted(found.items()):
            if rule != last:
                yield Row(address, rule)
                last = rule

    def followed(self, entries: Iterable[int]) -> Iterator[tuple[int, State]]:
        """What is known before each instruction that is reached from these functions.

        Each state is changed by the next step.
        """
        self._decode(entries)
        self._follow_calls()
        for together in self._groups():
            for leader, state in self.states(together).items():
                for address, step in self._block(leader):
                    yield address, state
                    for effect in step.effects:
                        state.apply(effect, address)

    def _decode(self, entries: Iterable[int]) -> None:
        todo = list(entries)
        self._entries.update(todo)
        while todo and len(self._steps) < STEPS_MOST:
            start = todo.pop()
            self._leaders.add(start)
            if start in self._steps:
                continue
            for address, step in steps(self._read(start), start):
                if address in self._steps:
                    self._leaders.add(address)
                    break
                self._steps[address] = step
                if step.targets:
                    self._leaders.add(step.after)
                    todo += [each for each in step.targets if self._is_inside(each)]
                if step.calls and self._is_inside(step.calls):
                    self._entries.add(step.calls)
                    todo.append(step.calls)
        self._entries.intersection_update(self._steps)
        self._leaders.intersection_update(self._steps)

    def _follow_calls(self) -> None:
        """Assembly calls assembly without a convention: what such a function writes is lost."""
        known: dict[int, frozenset[int]] = {}
        for address, step in self._steps.items():
            if step.calls in self._steps:
                lost = dropped(self._written(step.calls, known))
                self._steps[address] = step._replace(effects=lost)

    def _written(
        self, entry: int, known: dict[int, frozenset[int]], depth: int = 0
    ) -> frozenset[int]:
        """The registers that a function may write, without the stack pointer."""
        if entry not in known:
            known[entry] = ALL_REGISTERS  # for one that calls itself
            if depth > CALLS_MOST:
                return ALL_REGISTERS
            found: set[int] = set()
            todo, seen = [entry], {entry}
            while todo:
                for _, step in self._block(todo.pop()):
                    for effect in step.effects:
                        found.update((effect.to, *([effect.source] * (effect.act == Act.SWAP))))
                    if step.calls in self._steps:
                        found |= self._written(step.calls, known, depth + 1)
                new = self._leaders.intersection(step.following) - seen
                seen |= new
                todo += new
            known[entry] = ALL_REGISTERS.intersection(found)
        return known[entry]

    def _block(self, leader: int) -> Iterator[tuple[int, Step]]:
        """The instructions from a leader to before the next one."""
        address = leader
        while step := self._steps.get(address):
            yield address, step
            address = step.after
            if not step.falls or address in self._leaders:
                return

    def _groups(self) -> list[list[int]]:
        """The leaders that lead to each other, by address."""
        group_of = {leader: [leader] for leader in self._leaders}
        for leader in sorted(self._leaders):
            *_, (_, last) = self._block(leader)
            for target in last.following:
                ours, others = group_of[leader], group_of.get(target)
                if others is None or others is ours:
                    continue
                if len(ours) < len(others):
                    ours, others = others, ours
                ours += others
                group_of.update(dict.fromkeys(others, ours))
        return [sorted(each) for each in {id(each): each for each in group_of.values()}.values()]

    def states(self, together: Sequence[int]) -> dict[int, State]:
        """What is known at each of these leaders; nothing if they contradict each other."""
        renewed: set[int] = set()
        while len(renewed) < RENEWED_MOST:
            flow = _Flow(self._entries.intersection(together), renewed)
            if not self._follow(flow):
                break
            differing = flow.differing()
            if differing is None:
                is_sound = all(self._is_sound(*each) for each in flow.states.items())
                return flow.states if is_sound else {}
            renewed.add(differing)
        return {}

    def _follow(self, flow: _Flow) -> bool:
        """Follow all blocks until nothing changes. False if that takes too long."""
        todo = sorted(flow.entries)
        waiting = set(todo)
        while todo:
            leader = heappop(todo)
            waiting.discard(leader)
            state = flow.enter(leader)
            if state is None:
                continue
            self._blocks_left -= 1
            if self._blocks_left < 0:
                return False
            for target in self._leave(leader, state):
                flow.arrive(leader, target, state)
                if target not in waiting:
                    waiting.add(target)
                    heappush(todo, target)
        return True

    def _leave(self, leader: int, state: State) -> list[int]:
        """Take a state to the end of its block: the blocks that come next."""
        for address, step in self._block(leader):
            for effect in step.effects:
                state.apply(effect, address)
        return [each for each in step.following if each in self._leaders]

    def _is_sound(self, leader: int, state: State) -> bool:
        """Whether the stack is as at an entry where control leaves the functions."""
        state = state.copy()
        targets = self._leave(leader, state)
        *_, (_, step) = self._block(leader)
        if any(self._is_inside(each) for each in step.following if each not in targets):
            return False  # into what is no code
        leaves = step.returns or any(each not in targets for each in step.targets)
        return not leaves or state.stack == RETURNING


def word_of(rule: Rule | None, rule_word: Callable[[Rule], int]) -> int:
    """The word of a row, without address."""
    if rule is None:
        return Kind.NONE
    plain = plain_row(rule, X86_REGISTERS) if rule.kind == RuleKind.REGISTER else None
    return rule_word(rule) if plain is None else plain
