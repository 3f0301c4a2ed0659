# SPDX-License-Identifier: GPL-2.0-only
"""Properties that hold on every path through a function.

Which instructions every path executes, which it executes only once, which registers hold an
argument, and after which instructions nothing remains but the return.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from tlstax.collectors.binary.control_flow import RETURN, Flow
from tlstax.collectors.binary.machine import Instruction, Machine

NEVER: Final = -1  # nothing is returned from there
EVERY_PATH: Final = "every path executes it"
ALL_THAT_WORK: Final = "only paths that return at once bypass it"
Emulated = Callable[[Instruction], bool]


def bypassing(flow: Flow, address: int) -> str:
    """What the paths that bypass an instruction do: "" if some of them call or leave."""
    around = flow.reach([flow.start], without={address})
    if any(at in flow.calls or flow.leaves.get(at, RETURN) != RETURN for at in around):
        return ""
    return ALL_THAT_WORK if any(at in flow.leaves for at in around) else EVERY_PATH


def crossed_once(flow: Flow, address: int) -> bool:
    """Whether no path executes an instruction twice.

    The target of an indirect jump is unknown, but has the same stack depth as the jump.
    """
    if address in flow.reach(flow.after[address]):
        return False
    depth = flow.depth_bytes.get(address)
    others = [flow.depth_bytes.get(at) for at in flow.open_ends]
    return address == flow.start or all(at is not None and at != depth for at in others)


def holders(flow: Flow, register: int) -> Mapping[int, frozenset[int]]:
    """Before each instruction, the registers that hold what `register` held on entry."""
    states = {flow.start: frozenset({register})}
    waiting = [flow.start]
    while waiting:
        address = waiting.pop()
        state = _carried(flow, address, states[address])
        for successor in flow.after[address]:
            if successor not in flow.at:
                continue
            known = states.get(successor)
            merged = state if known is None else known & state
            if merged != known:
                states[successor] = merged
                waiting.append(successor)
    return states


def _carried(flow: Flow, address: int, state: frozenset[int]) -> frozenset[int]:
    instruction = flow.at[address]
    if address in flow.calls:
        return state & flow.machine.callee_saved
    kept = state - frozenset(flow.machine.written_registers(instruction))
    copied = flow.machine.copied(instruction)
    # Half a register cannot hold a pointer.
    if copied is not None and copied[1] in state and flow.machine.copies_whole(instruction):
        kept |= {copied[0]}
    return kept


def preferred(register: int, among: frozenset[int]) -> int:
    """The register itself while it holds its value, else any other that does."""
    return register if register in among else min(among)


def quiet_part(flow: Flow, short: Collection[int] = ()) -> set[int]:
    """The instructions after which nothing is called, repeated or jumped to.

    `short`: calls that take no time to speak of.
    """
    before = flow.before()
    left = {at: sum(s in flow.at for s in after) for at, after in flow.after.items()}
    waiting = [at for at, count in left.items() if not count]
    quiet: set[int] = set()
    while waiting:
        address = waiting.pop()
        is_call = address in flow.calls and address not in short
        if is_call or flow.leaves.get(address, RETURN) != RETURN:
            continue
        quiet.add(address)
        for earlier in before[address]:
            left[earlier] -= 1
            if not left[earlier]:
                waiting.append(earlier)
    return quiet


def exit_cut(flow: Flow, since: int | None, emulated: Emulated) -> set[int]:
    """Emulated instructions of which every path from `since` to a return executes exactly one.

    Empty if there is no such set, or if a path leaves by anything but a return.
    """
    starts = [flow.start] if since is None else list(flow.after[since])
    ways = flow.reach(starts)
    if any(flow.leaves.get(at, RETURN) != RETURN for at in ways):
        return set()
    quiet = quiet_part(flow)
    before = flow.before()
    first = {at for at in ways & quiet if any(b not in quiet for b in before[at])}
    first |= quiet & set(starts)
    cut = _each_once(flow, _first_on_each(flow, first, emulated) or set())
    around = flow.reach([flow.start], without={since}) if since is not None else set()
    uncovered = flow.reach(starts, without=cut)
    if cut & around or any(at in flow.leaves for at in uncovered):
        return set()
    return cut


class Crossing(NamedTuple):
    """An emulated instruction on a way out of a function."""

    address: int
    behind: int  # the instruction after it on that way, or itself; results are known there
    condition: int = (
        -1
    )  # condition code of the machine that must hold for that way, -1: every way leads out
    again: bool = False  # a path may cross it after another one


def branch_cut(
    flow: Flow,
    since: int | None,
    emulated: Emulated,
    ends: Collection[str] = (RETURN,),
    short: Collection[int] = (),
) -> list[Crossing]:
    """Emulated instructions, or directions of conditional jumps, of which every path from `since`
    to a return has at least one, with neither call nor loop after the first of them.

    Empty if there is no such set, or if a path leaves by anything but `ends`. `short`: calls that
    may follow.
    """
    starts = [flow.start] if since is None else list(flow.after[since])
    ways = flow.reach(starts)
    if any(flow.leaves.get(at, RETURN) not in ends for at in ways):
        return []
    quiet, before = quiet_part(flow, short), flow.before()
    edges: set[tuple[int, int]] = set()
    need = quiet & set(starts)
    for address in ways & quiet:
        for earlier in before[address]:
            if earlier in quiet or earlier not in ways:
                continue
            jump = flow.at[earlier]
            parts = jump.is_jcc_short_or_near and jump.near_branch_target != jump.next_ip
            if parts and emulated(jump):
                edges.add((earlier, address))
            else:
                need.add(address)
    nodes = _first_on_each(flow, need, emulated)
    if nodes is None:
        return []
    # A jump is needed only where a path behind it has none of the instructions found.
    edges = {edge for edge in edges if _leaves(flow, flow.reach([edge[1]], without=nodes))}
    behind = flow.reach([target for _, target in edges])
    behind |= flow.reach([s for at in nodes for s in flow.after[at]])
    found = [Crossing(at, at, again=at in behind) for at in nodes]
    for jump_at, target in edges:
        jump = flow.at[jump_at]
        code = int(jump.condition_code) - 1
        taken = jump.near_branch_target == target
        found.append(Crossing(jump_at, target, code if taken else code ^ 1))
    return sorted(found)


def _leaves(flow: Flow, part: set[int]) -> bool:
    return any(at in flow.leaves for at in part)


def _first_on_each(flow: Flow, starts: set[int], emulated: Emulated) -> set[int] | None:
    """The first emulated instruction on each path; None if a path leaves without any."""
    found: set[int] = set()
    seen: set[int] = set()
    waiting = list(starts)
    while waiting:
        address = waiting.pop()
        if address in seen:
            continue
        seen.add(address)
        if emulated(flow.at[address]):
            if _leaves(flow, flow.reach([address])):  # else it ends with a throw or the like
                found.add(address)
        elif address in flow.leaves:
            return None
        else:
            waiting += [s for s in flow.after[address] if s in flow.at]
    return found


def _each_once(flow: Flow, cut: set[int]) -> set[int]:
    """The set without those that another one always follows; empty if one only may follow."""
    for address in sorted(cut):
        behind = flow.reach(flow.after[address])
        if not behind & cut:
            continue
        rest = cut - {address}
        if any(at in flow.leaves for at in flow.reach(flow.after[address], without=rest)):
            return set()
        cut = rest
    return cut


def final_values(flow: Flow) -> dict[int, int | None]:
    """Before each quiet instruction, the register that holds the result; None if none does."""
    quiet = quiet_part(flow)
    known: dict[int, int | None] = {}
    ready = sorted(quiet, reverse=True)
    while ready:
        later = []
        for address in ready:
            successors = [s for s in flow.after[address] if s in flow.at]
            if any(s not in known for s in successors):
                later.append(address)
            elif successors:
                behind = {known[s] for s in successors} - {NEVER}
                known[address] = (
                    _before_it(flow.machine, flow.at[address], behind) if behind else NEVER
                )
            else:
                known[address] = flow.machine.result if address in flow.leaves else NEVER
        ready = later
    return {address: None if value == NEVER else value for address, value in known.items()}


def _before_it(machine: Machine, instruction: Instruction, behind: set[int | None]) -> int | None:
    """The register that holds the value before an instruction, given the one after it."""
    if len(behind) > 1:
        return None
    register = behind.pop()
    if register is None or register not in machine.written_registers(instruction):
        return register
    copied = machine.copied(instruction)
    return copied[1] if copied is not None and copied[0] == register else None
