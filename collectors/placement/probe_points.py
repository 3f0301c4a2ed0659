# SPDX-License-Identifier: GPL-2.0-only
"""Finds the instructions at which to probe the entry and exit of a function, with their cost.

`Finder.points(symbol, events)` compares these placements and chooses the cheapest:

- *entry*: the first emulated instruction that every path executes once, before any call or exit. A
  path that returns at once without a call may bypass it: it takes no time. An argument that is
  needed must still be in a register there.
- *return probe*, only where the caller allows it (`placement.return_probes`): the kernel reads the
  return address from the stack, so it can be armed on any such instruction before the stack pointer
  has moved, not only on the first one. It sees every exit, tail calls too.
- *exits inside*: a set of emulated instructions of which each path out executes exactly one, with
  neither call nor loop after it (the `jne` of the stack protector's check, the jumps to the
  epilogue). The result must be in a known register there.
- *stepped*: none of these; the probe stays on the first instruction.

`placement.callers` finds probe points at the call sites of a function, `placement.exit_order` says
which way is taken.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tlstax.collectors.binary.code_map import CodeMap
from tlstax.collectors.binary.control_flow import Flow, flow_of
from tlstax.collectors.binary.dataflow import (
    EVERY_PATH,
    bypassing,
    crossed_once,
    exit_cut,
    final_values,
    holders,
    preferred,
)
from tlstax.collectors.binary.elf import Elf, Symbol
from tlstax.collectors.binary.machine import Instruction
from tlstax.collectors.binary.symbol_tables import ObjectSymbols
from tlstax.collectors.host.probe_costs.prices import Prices, Probe, crossing_ns

CANDIDATES_LIMIT: Final = 48  # emulated instructions that are tried as an entry
ENTRIES_TRIED: Final = 8  # of those, with exits inside
STEPPED: Final = "stepped: no emulated instruction on every path"
RETURN_ADDRESS_BYTES: Final = 8  # of the ledger's stack, on every machine


@dataclass(frozen=True)
class ProbePoint:
    """An instruction chosen for a probe, before it becomes a Site."""

    function: str
    address: int
    instruction: str
    kind: str  # uprobe or uretprobe
    emulated: bool
    reason: str
    register: str = ""  # that holds the argument or the result; "" if none is read
    stack_bytes: int = 0  # see Site
    condition: int = -1  # see Site
    stray: bool = False  # see Site
    unseen_exits: bool = False  # see Site


PlacedProbes = list[tuple[str, ProbePoint]]


@dataclass(frozen=True)
class Option:
    """One placement of probes for the events of a function."""

    name: str
    points: tuple[tuple[str, ProbePoint], ...]
    cost_ns: float  # of one crossing

    @property
    def stepped(self) -> bool:
        """Whether any of its probes is single-stepped."""
        return any(not point.emulated for _, point in self.points)


class Finder:
    """Finds probe points in one object, for the forms that the kernel emulates and its prices."""

    def __init__(
        self,
        elf: Elf,
        emulated: Collection[str] = (),
        prices: Prices | None = None,
        names: ObjectSymbols | None = None,
    ) -> None:
        self.code = CodeMap(elf, names)
        self.machine = self.code.machine
        self.elf = elf
        self.emulated = emulated
        self.prices = prices or Prices()
        self._flows: dict[int, Flow] = {}

    def points(
        self, symbol: Symbol, events: Sequence[str], argument: int = -1, returned: bool = False
    ) -> PlacedProbes:
        """The cheapest probe points for the events ("enter", "exit"); [] if there is no code.

        `argument`: index of the argument that is read on entry, -1 for none; `returned`: whether
        the exit reads the result.
        """
        options = self.options(symbol, events, argument, returned)
        return list(options[0].points) if options else []

    def options(
        self,
        symbol: Symbol,
        events: Sequence[str],
        argument: int = -1,
        returned: bool = False,
        returns: bool = True,
    ) -> list[Option]:
        """Every way to see the events within the function, cheapest first.

        `returns`: whether a return probe may be used; an exit always has one then. At equal cost it
        comes first, as it does not depend on the ways out.
        """
        flow = self.flow(symbol)
        if symbol.address not in flow.at:
            return []
        entries = self.entries(symbol, argument if "enter" in events else -1)
        found: list[Option] = []
        if "exit" not in events:
            found = [
                self._option("entry", [("enter", self.entry_point(symbol, entry))])
                for entry in entries[:1]
            ]
        else:
            if returns:
                found += self._with_return_probe(symbol, flow, events, entries)
            found += self._with_exits(symbol, flow, events, entries, returned)
        if (returns or "exit" not in events) and not self.is_refused(symbol):
            found.append(self._stepped(symbol, events, argument))
        # The sort is stable: at the same cost the order above decides.
        return sorted(found, key=lambda option: option.cost_ns)

    def flow(self, symbol: Symbol) -> Flow:
        """The control flow of a function."""
        if symbol.address not in self._flows:
            self._flows[symbol.address] = flow_of(self.code, symbol)
        return self._flows[symbol.address]

    def is_emulated(self, instruction: Instruction) -> bool:
        """Whether this kernel emulates an instruction of this object."""
        raw = self.elf.code_at(instruction.ip, instruction.len)
        return self.machine.is_emulated(instruction, raw, self.emulated)

    def is_refused(self, symbol: Symbol) -> bool:
        """Whether the kernel refuses a probe on the first instruction of a function."""
        return self.machine.is_refused(self.flow(symbol).at[symbol.address])

    # ---- entries ----

    def entries(self, symbol: Symbol, argument: int = -1) -> list["Entry"]:
        """Emulated instructions to probe the entry of a function at, best first."""
        flow = self.flow(symbol)
        if flow.broken or symbol.address not in flow.at:
            return []
        need = self.machine.arguments[argument] if argument >= 0 else None
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
            registers = self.machine.readable(held.get(address, frozenset()))
            if depth is None or depth < 0 or (need is not None and not registers):
                continue
            if (bypass := bypassing(flow, address)) and crossed_once(flow, address):
                register = ""
                if need is not None:
                    register = self.machine.names[preferred(need, registers)]
                found.append(Entry(address, depth, bypass, register))
            if len(found) >= CANDIDATES_LIMIT:
                break
        return sorted(found, key=lambda entry: entry.bypass != EVERY_PATH)

    def entry_point(self, symbol: Symbol, entry: "Entry") -> ProbePoint:
        """The probe on one of the entries."""
        instruction = self.flow(symbol).at[entry.address]
        offset = entry.address - symbol.address
        why = "its first instruction is emulated"
        if offset:
            why = f"the first emulated instruction, {offset} bytes in; {entry.bypass}"
        return ProbePoint(
            symbol.name, entry.address, self.machine.text_of(instruction), "uprobe", True, why,
            entry.register, entry.depth + self.machine.entry_bytes,
        )  # fmt: skip

    # ---- exits ----

    def _with_return_probe(
        self, symbol: Symbol, flow: Flow, events: Sequence[str], entries: Sequence["Entry"]
    ) -> list[Option]:
        # An exit without an entry probe must see every return, also one at once.
        wanted = [e for e in entries if "enter" in events or e.bypass == EVERY_PATH]
        armed = next((entry for entry in wanted if entry.depth == 0), None)
        if armed is None:
            return []
        offset = armed.address - symbol.address
        if offset and self.machine.keeps_return_address:
            return []  # it may be signed or saved by then
        why = "a return probe on its first instruction, which is emulated"
        if offset:
            why = (
                f"a return probe {offset} bytes in, where the stack is still as on entry;"
                f" {armed.bypass}"
            )
        instruction = self.machine.text_of(flow.at[armed.address])
        leave = ProbePoint(
            symbol.name, armed.address, instruction, "uretprobe", True, why,
            self.machine.result_name,
        )  # fmt: skip
        enter = self.entry_point(symbol, armed)
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
                known = known and all(values.get(address) in self.machine.names for address in cut)
            if cut and known:
                leaves = self._leaves(symbol, flow, cut, values)
                first = self.entry_point(symbol, enter) if enter else None
                return [self._option("exits inside", _ordered(events, first, leaves))]
        return []

    def _leaves(
        self, symbol: Symbol, flow: Flow, cut: set[int], values: Mapping[int, int | None]
    ) -> list[ProbePoint]:
        leaves = []
        for address in sorted(cut):
            register = self.machine.names[self.machine.result]
            if (value := values.get(address)) is not None:
                register = self.machine.names[value]
            depth = flow.depth_bytes[address] or 0
            why = (
                f"an emulated instruction on the only path out, {address - symbol.address} bytes in"
            )
            if len(cut) > 1:
                why = f"one of {len(cut)} emulated instructions; each path out has one of them"
            leaves.append(
                ProbePoint(
                    symbol.name, address, self.machine.text_of(flow.at[address]), "uprobe", True,
                    why, register, depth + self.machine.entry_bytes + RETURN_ADDRESS_BYTES,
                )
            )  # fmt: skip
        return leaves

    def start_point(self, symbol: Symbol, argument: int) -> ProbePoint:
        """The probe on the first instruction, single-stepped if need be."""
        flow = self.flow(symbol)
        first = flow.at[symbol.address]
        emulated = self.is_emulated(first)
        why = "its first instruction is emulated" if emulated else STEPPED
        if flow.broken:
            why = f"{why}; {flow.broken}"
        elif flow.open_ends and not emulated:
            why = f"{STEPPED}; it uses a jump table, so not every path is known"
        text, register = self.machine.text_of(first), self.machine.argument_name(argument)
        return ProbePoint(
            symbol.name, symbol.address, text, "uprobe", emulated, why, register,
            self.machine.entry_bytes,
        )  # fmt: skip

    def _stepped(self, symbol: Symbol, events: Sequence[str], argument: int) -> Option:
        enter = self.start_point(symbol, argument)
        leave = replace(enter, kind="uretprobe", register=self.machine.result_name, stack_bytes=0)
        return self._option("start", _ordered(events, enter, [leave]))

    def _option(self, name: str, points: PlacedProbes) -> Option:
        probes = [
            (event, Probe(point.address, point.kind == "uretprobe", point.emulated))
            for event, point in points
        ]
        return Option(name, tuple(points), crossing_ns(self.prices, probes))


@dataclass(frozen=True)
class Entry:
    """A candidate instruction for the entry of a function."""

    address: int
    depth: int  # bytes on the stack
    bypass: str  # which paths bypass it
    register: str  # that holds the argument, "" if none is needed


def _ordered(
    events: Sequence[str], enter: ProbePoint | None, leaves: Iterable[ProbePoint]
) -> PlacedProbes:
    chosen: PlacedProbes = []
    if "enter" in events and enter is not None:
        chosen.append(("enter", enter))
    return chosen + [("exit", leave) for leave in leaves if "exit" in events]
