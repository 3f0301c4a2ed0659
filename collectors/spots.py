# SPDX-License-Identifier: GPL-2.0-only
"""The instructions of one function where its entry and its exit can be seen, and at what cost.

`Finder.spots(symbol, events)` weighs what there is, and takes the cheapest:

- *entry*: the first emulated instruction that every path crosses once, before it calls or leaves
  anything. A path that returns at once without calling anything may bypass it: no time is lost with
  it. An argument that is needed must still be in a register there.
- *return probe*: the kernel reads the return address from the stack, so it can be armed on any
  such instruction before the stack pointer has moved, not only on the first one. It sees every way
  out, tail calls too.
- *exits inside*: a set of emulated instructions of which each path out crosses exactly one, with
  neither call nor loop behind it (the `jne` of the stack protector's check, the jumps to the
  epilogue). What the function returns must be in a known register there.
- *stepped*: none of these; the probe stays on the first instruction.

Spots at the places that call the function are in `tlstax.collectors.callers`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from iced_x86 import Instruction, Mnemonic, OpKind, Register, RegisterExt

from tlstax.collectors.control_flow import RETURN, CodeMap, Flow, flow_of
from tlstax.collectors.elf import Elf, Symbol
from tlstax.collectors.instructions import (
    ALWAYS_EMULATED,
    ARGUMENT_REGISTERS,
    CALLEE_SAVED,
    REGISTER_NAMES,
    is_emulated,
    text_of,
    written_registers,
)
from tlstax.collectors.price_list import Prices

CANDIDATES_LIMIT: Final = 48  # emulated instructions that are looked at as an entry
ENTRIES_TRIED: Final = 8  # of those, with exits inside
STEPPED: Final = "stepped: no emulated instruction on every path"


@dataclass(frozen=True)
class Spot:
    """An instruction chosen for a probe, before it becomes a Site."""

    function: str
    address: int
    instruction: str
    kind: str  # uprobe or uretprobe
    emulated: bool
    reason: str
    register: str = ""  # that holds the argument, or what is returned; "" when none is read
    stack_bytes: int = 0  # see Site


Chosen = list[tuple[str, Spot]]
Emulated = Callable[[Instruction], bool]


@dataclass(frozen=True)
class Option:
    """One way to see the events of a function."""

    name: str
    spots: tuple[tuple[str, Spot], ...]
    cost_ns: float  # of one crossing

    @property
    def stepped(self) -> bool:
        """Whether any of its probes is single-stepped."""
        return any(not spot.emulated for _, spot in self.spots)


class Finder:
    """Finds spots in one object. `emulated`: what the kernel emulates; `prices`: what hits cost."""

    def __init__(
        self,
        elf: Elf,
        emulated: Collection[str] = ALWAYS_EMULATED,
        prices: Prices | None = None,
    ) -> None:
        self.code = CodeMap(elf)
        self.elf = elf
        self.emulated = emulated
        self.prices = prices or Prices()
        self._flows: dict[int, Flow] = {}

    def spots(
        self, symbol: Symbol, events: Sequence[str], argument: int = -1, returned: bool = False
    ) -> Chosen:
        """The cheapest spots for the events ("enter", "exit") of a function; [] if it has no code.

        `argument` is the index of the one that is read on entry, -1 for none; `returned` says
        whether the exit reads what the function returns.
        """
        options = self.options(symbol, events, argument, returned)
        return list(options[0].spots) if options else []

    def options(
        self, symbol: Symbol, events: Sequence[str], argument: int = -1, returned: bool = False
    ) -> list[Option]:
        """Every way to see the events within the function, cheapest first; the last one always is.

        Of equally cheap ones a return probe comes first: it does not depend on the ways out.
        """
        flow = self.flow(symbol)
        if symbol.address not in flow.at:
            return []
        need = ARGUMENT_REGISTERS[argument] if argument >= 0 and "enter" in events else None
        entries = [] if flow.broken else self._entries(flow, need)
        found: list[Option] = []
        if "exit" not in events:
            found = [
                self._option("entry", [("enter", self._entry(symbol, flow, entry))])
                for entry in entries[:1]
            ]
        else:
            found += self._with_return_probe(symbol, flow, events, entries)
            found += self._with_exits(symbol, flow, events, entries, returned)
        found.append(self._stepped(symbol, flow, events, argument))
        # Stable: what stands first above is preferred at the same price.
        return sorted(found, key=lambda option: option.cost_ns)

    def flow(self, symbol: Symbol) -> Flow:
        """The ways through a function."""
        if symbol.address not in self._flows:
            self._flows[symbol.address] = flow_of(self.code, symbol)
        return self._flows[symbol.address]

    def is_emulated(self, instruction: Instruction) -> bool:
        """Whether this kernel emulates an instruction of this object."""
        raw = self.elf.code_at(instruction.ip, instruction.len)
        return is_emulated(instruction, raw, self.emulated)

    # ---- entries ----

    def _entries(self, flow: Flow, need: int | None) -> list["Entry"]:
        """Where the entry of a function can be seen, best first."""
        early = flow.reach([flow.start], without=flow.calls) | {
            successor
            for address in flow.reach([flow.start], without=flow.calls)
            for successor in flow.after[address]
            if successor in flow.calls
        }
        early |= {flow.start} & flow.calls
        held = holders(flow, need) if need is not None else {}
        found = []
        for address in sorted(early, key=lambda at: (at < flow.start, at))[: CANDIDATES_LIMIT * 8]:
            if not self.is_emulated(flow.at[address]):
                continue
            depth = flow.depth_bytes.get(address)
            registers = held.get(address, frozenset())
            if depth is None or depth < 0 or (need is not None and not registers):
                continue
            if (bypass := bypassing(flow, address)) and crossed_once(flow, address):
                register = REGISTER_NAMES[preferred(need, registers)] if need is not None else ""
                found.append(Entry(address, depth, bypass, register))
            if len(found) >= CANDIDATES_LIMIT:
                break
        return sorted(found, key=lambda entry: entry.bypass != EVERY_PATH)

    def _entry(self, symbol: Symbol, flow: Flow, entry: "Entry") -> Spot:
        instruction = flow.at[entry.address]
        offset = entry.address - symbol.address
        why = "its first instruction is emulated"
        if offset:
            why = f"the first emulated instruction, {offset} bytes in; {entry.bypass}"
        return Spot(
            symbol.name, entry.address, text_of(instruction), "uprobe", True, why,
            entry.register, entry.depth,
        )  # fmt: skip

    # ---- exits ----

    def _with_return_probe(
        self, symbol: Symbol, flow: Flow, events: Sequence[str], entries: Sequence["Entry"]
    ) -> list[Option]:
        armed = next((entry for entry in entries if entry.depth == 0), None)
        if armed is None:
            return []
        offset = armed.address - symbol.address
        why = "a return probe on its first instruction, which is emulated"
        if offset:
            why = (
                f"a return probe {offset} bytes in, where the stack is still as on entry;"
                f" {armed.bypass}"
            )
        instruction = text_of(flow.at[armed.address])
        leave = Spot(symbol.name, armed.address, instruction, "uretprobe", True, why, "rax")
        enter = self._entry(symbol, flow, armed)
        return [self._option("return probe", _ordered(events, enter, [leave]))]

    def _with_exits(
        self,
        symbol: Symbol,
        flow: Flow,
        events: Sequence[str],
        entries: Sequence["Entry"],
        returned: bool,
    ) -> list[Option]:
        if flow.broken or flow.open_ends:
            return []
        values = final_values(flow) if returned else {}
        enters: list[Entry | None] = [None]
        if "enter" in events:
            enters = list(entries[:ENTRIES_TRIED])
        for enter in enters:
            cut = exit_cut(flow, enter.address if enter else None, self.is_emulated)
            known = all(flow.depth_bytes.get(address) is not None for address in cut)
            if returned:
                known = known and all(values.get(address) is not None for address in cut)
            if cut and known:
                leaves = self._leaves(symbol, flow, cut, values)
                first = self._entry(symbol, flow, enter) if enter else None
                return [self._option("exits inside", _ordered(events, first, leaves))]
        return []

    def _leaves(
        self, symbol: Symbol, flow: Flow, cut: set[int], values: Mapping[int, int | None]
    ) -> list[Spot]:
        leaves = []
        for address in sorted(cut):
            register = REGISTER_NAMES[values.get(address) or int(Register.RAX)]
            depth = flow.depth_bytes[address] or 0
            why = (
                f"an emulated instruction on the only way out, {address - symbol.address} bytes in"
            )
            if len(cut) > 1:
                why = f"one of {len(cut)} emulated instructions; each way out has one of them"
            leaves.append(
                Spot(
                    symbol.name, address, text_of(flow.at[address]), "uprobe", True, why,
                    register, depth + 8,
                )
            )  # fmt: skip
        return leaves

    def _stepped(self, symbol: Symbol, flow: Flow, events: Sequence[str], argument: int) -> Option:
        first = flow.at[symbol.address]
        emulated = self.is_emulated(first)
        why = "its first instruction is emulated" if emulated else STEPPED
        if flow.broken:
            why = f"{why}; {flow.broken}"
        elif flow.open_ends and not emulated:
            why = f"{STEPPED}; it jumps through a table, so not every path is known"
        register = REGISTER_NAMES[ARGUMENT_REGISTERS[argument]] if argument >= 0 else ""
        text = text_of(first)
        enter = Spot(symbol.name, symbol.address, text, "uprobe", emulated, why, register)
        leave = Spot(symbol.name, symbol.address, text, "uretprobe", emulated, why, "rax")
        return self._option("start", _ordered(events, enter, [leave]))

    def _option(self, name: str, spots: Chosen) -> Option:
        return Option(name, tuple(spots), self.cost_ns(spots))

    def cost_ns(self, spots: Chosen) -> float:
        """What one crossing costs: an instruction traps once for all its probes."""
        traps = {spot.address: spot for _, spot in spots if spot.kind == "uretprobe"}
        traps |= {spot.address: spot for event, spot in spots if event == "enter"}
        cost = sum(self.prices.trap_ns(spot.emulated) for spot in traps.values())
        if any(spot.kind == "uretprobe" for _, spot in spots):
            cost += self.prices.return_ns
        either = [s for event, s in spots if event == "exit" and s.kind == "uprobe"]
        return cost + (self.prices.trap_ns(all(s.emulated for s in either)) if either else 0)


NEVER: Final = -1  # nothing is returned from there
EVERY_PATH: Final = "every path crosses it"
ALL_THAT_WORK: Final = "only paths that return at once go around it"


@dataclass(frozen=True)
class Entry:
    """An instruction at which a function has been entered."""

    address: int
    depth: int  # bytes on the stack
    bypass: str  # what can be said of the paths around it
    register: str  # that holds the argument, "" when none is needed


def _ordered(events: Sequence[str], enter: Spot | None, leaves: Iterable[Spot]) -> Chosen:
    chosen: Chosen = []
    if "enter" in events and enter is not None:
        chosen.append(("enter", enter))
    return chosen + [("exit", leave) for leave in leaves if "exit" in events]


def bypassing(flow: Flow, address: int) -> str:
    """What the paths around an instruction do: "" when some of them call or go elsewhere."""
    around = flow.reach([flow.start], without={address})
    if any(at in flow.calls or flow.leaves.get(at, RETURN) != RETURN for at in around):
        return ""
    return ALL_THAT_WORK if any(at in flow.leaves for at in around) else EVERY_PATH


def crossed_once(flow: Flow, address: int) -> bool:
    """Whether no path crosses an instruction twice.

    Where an indirect jump leads to is not known, but never to where the stack is another.
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
        return state & CALLEE_SAVED
    kept = state - written_registers(instruction)
    copied = _copy(instruction)
    # A pointer is not held by half a register.
    if copied is not None and copied[1] in state and instruction.op0_register == copied[0]:
        kept |= {copied[0]}
    return kept


def _copy(instruction: Instruction) -> tuple[int, int] | None:
    """(to, from) as full registers of a move between 32 or 64 bit registers."""
    kinds = (instruction.op0_kind, instruction.op1_kind)
    if instruction.mnemonic != Mnemonic.MOV or kinds != (OpKind.REGISTER, OpKind.REGISTER):
        return None
    if RegisterExt.size(instruction.op0_register) < 4:
        return None
    return (
        RegisterExt.full_register(instruction.op0_register),
        RegisterExt.full_register(instruction.op1_register),
    )


def preferred(register: int, among: frozenset[int]) -> int:
    """The register itself while it holds its value, else any other that does."""
    return register if register in among else min(among)


def quiet_part(flow: Flow) -> set[int]:
    """The instructions behind which nothing is called, repeated or jumped to any more."""
    before = flow.before()
    left = {at: sum(s in flow.at for s in after) for at, after in flow.after.items()}
    waiting = [at for at, count in left.items() if not count]
    quiet: set[int] = set()
    while waiting:
        address = waiting.pop()
        if address in flow.calls or flow.leaves.get(address, RETURN) != RETURN:
            continue
        quiet.add(address)
        for earlier in before[address]:
            left[earlier] -= 1
            if not left[earlier]:
                waiting.append(earlier)
    return quiet


def exit_cut(flow: Flow, since: int | None, emulated: Emulated) -> set[int]:
    """Emulated instructions of which every path from `since` to a return crosses exactly one.

    Empty when there is no such set, or a path leaves otherwise than by a return.
    """
    starts = [flow.start] if since is None else list(flow.after[since])
    ways = flow.reach(starts)
    if any(flow.leaves.get(at, RETURN) != RETURN for at in ways):
        return set()
    quiet = quiet_part(flow)
    before = flow.before()
    first = {at for at in ways & quiet if any(b not in quiet for b in before[at])}
    first |= quiet & set(starts)
    cut: set[int] = set()
    seen: set[int] = set()
    waiting = list(first)
    while waiting:
        address = waiting.pop()
        if address in seen:
            continue
        seen.add(address)
        if emulated(flow.at[address]):
            cut.add(address)
        elif address in flow.leaves:
            return set()
        else:
            waiting += [s for s in flow.after[address] if s in flow.at]
    cut = _each_once(flow, cut)
    around = flow.reach([flow.start], without={since}) if since is not None else set()
    uncovered = flow.reach(starts, without=cut)
    if cut & around or any(at in flow.leaves for at in uncovered):
        return set()
    return cut


def _each_once(flow: Flow, cut: set[int]) -> set[int]:
    """The set without those behind which another one always comes; empty if one only may come."""
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
    """Before each quiet instruction, the register with what is returned; None when none has it."""
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
                known[address] = _before_it(flow.at[address], behind) if behind else NEVER
            else:
                known[address] = int(Register.RAX) if address in flow.leaves else NEVER
        ready = later
    return {address: None if value == NEVER else value for address, value in known.items()}


def _before_it(instruction: Instruction, behind: set[int | None]) -> int | None:
    """Where the value is before an instruction, when it is there behind it."""
    if len(behind) > 1:
        return None
    register = behind.pop()
    if register is None or register not in written_registers(instruction):
        return register
    copied = _copy(instruction)
    return copied[1] if copied is not None and copied[0] == register else None
