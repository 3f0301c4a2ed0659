# SPDX-License-Identifier: GPL-2.0-only
"""Which of the known libraries and servers a process contains, by mapped files and symbols.

A library is recognised when the objects it may live in (shared objects by file name, and the
program itself, into which it may be linked) define all the symbols that its definition requires. A
process may hold two copies of one library; each is found.
"""

import re
import struct
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from tlstax.collectors.binary.elf import Elf, Symbol
from tlstax.collectors.binary.symbol_tables import ObjectSymbols
from tlstax.collectors.placement.model import Library
from tlstax.collectors.process.mappings import MappedObject
from tlstax.collectors.process.target import Target
from tlstax.probes.model import Definition, Detection, Function, compile_names

Found = tuple[MappedObject, Elf, Symbol]
DYNAMIC = struct.Struct("<QQ")  # Elf64_Dyn: tag, value
DT_NEEDED = 1


@dataclass(frozen=True)
class OpenObject:
    """A mapped object, opened, with the symbols that any definition mentions."""

    mapped: MappedObject
    elf: Elf
    symbols: tuple[Symbol, ...]
    names: ObjectSymbols | None = field(default=None, compare=False)  # all of its symbol tables


@dataclass(frozen=True)
class Detected:
    """A recognised library together with its opened objects."""

    definition: Definition
    library: Library
    objects: tuple[OpenObject, ...]

    def defines(self, symbol: str) -> bool:
        """Whether one of its objects defines a symbol that a definition mentions."""
        return any(known.name == symbol for entry in self.objects for known in entry.symbols)

    def functions(self, function: Function) -> list[Found]:
        """The function in each object that defines it."""
        found = []
        for entry in self.objects:
            matching = [s for s in entry.symbols if function.matches(s.name)]
            if matching:
                # A pattern may also match a small overload; the largest match is used.
                largest = max(matching, key=lambda symbol: symbol.size)
                found.append((entry.mapped, entry.elf, largest))
        return found


def detect(
    target: Target, definitions: Sequence[Definition], resources: ExitStack
) -> list[Detected]:
    """The definitions that apply to the target. Opened files are closed with `resources`."""
    wanted = compile_names(_patterns(definitions))
    root = target.proc / str(target.pid) / "root"
    opened: dict[MappedObject, OpenObject] = {}
    detected = []
    for definition in definitions:
        objects = []
        for mapped in target.objects:
            if mapped.open_path and (mapped == target.program or _is_named(mapped, definition)):
                if mapped not in opened:
                    elf = resources.enter_context(Elf(mapped.open_path))
                    names = ObjectSymbols(elf, root, mapped.path)
                    resources.callback(names.close)
                    symbols = tuple(names.matching(wanted))
                    opened[mapped] = OpenObject(mapped, elf, symbols, names)
                objects.append(opened[mapped])
        if found := _recognise(target, definition, objects):
            detected.append(found)
    return _used_first(detected)


def _used_first(detected: list[Detected]) -> list[Detected]:
    """A process may hold several TLS libraries: those that the server or client library was linked
    with come first."""
    needed = {
        name
        for entry in detected
        if entry.library.kind != "tls"
        for opened in entry.objects
        for name in needed_names(opened.elf)
    }

    def is_used(entry: Detected) -> bool:
        names = [opened.mapped.name for opened in entry.objects]
        return any(name.startswith(wanted) for name in names for wanted in needed)

    return sorted(detected, key=lambda entry: not is_used(entry))


def needed_names(elf: Elf) -> list[str]:
    """The names of the shared objects that a file was linked with."""
    entries, strings = elf.content(".dynamic"), elf.content(".dynstr")
    found = []
    for tag, value in DYNAMIC.iter_unpack(entries[: len(entries) // DYNAMIC.size * DYNAMIC.size]):
        if tag == DT_NEEDED and value < len(strings):
            found.append(strings[value : strings.find(b"\0", value)].decode(errors="replace"))
    return found


def _is_named(mapped: MappedObject, definition: Definition) -> bool:
    return any(fnmatchcase(mapped.name, pattern) for pattern in definition.detect.objects)


def _recognise(
    target: Target, definition: Definition, objects: Sequence[OpenObject]
) -> Detected | None:
    """The definition with the objects that match it, None if it does not apply."""
    owned = compile_names(_patterns([definition]))
    objects = [o for o in objects if any(owned.fullmatch(s.name) for s in o.symbols)]
    names = {symbol.name for entry in objects for symbol in entry.symbols}
    for pattern in definition.detect.symbols:
        expression = compile_names([pattern])
        if not any(expression.fullmatch(name) for name in names):
            return None
    mapped = tuple(entry.mapped for entry in objects)
    linkage = "static" if target.program in mapped else "shared"
    library = Library(
        id=definition.id,
        kind=definition.kind,
        name=definition.name,
        version=_version(definition.detect, objects),
        linkage="program" if definition.kind == "server" else linkage,
        objects=mapped,
    )
    return Detected(definition, library, tuple(objects))


def _patterns(definitions: Sequence[Definition]) -> list[str]:
    """Every symbol name that the definitions mention."""
    patterns: list[str] = []
    for definition in definitions:
        patterns += definition.detect.symbols
        patterns += (name for role in definition.roles for name in role.functions)
        for boundary in definition.boundaries:
            patterns += (function.pattern for function in boundary.functions)
            if boundary.only_with:
                patterns.append(boundary.only_with)
            if boundary.method_table:
                patterns += (*boundary.method_table.getters, *boundary.method_table.setters)
        patterns += (accessor.function for accessor in definition.accessors)
        for primitive in definition.primitives:
            patterns += (function.pattern for function in primitive.functions)
    return sorted(set(patterns))


def _version(detection: Detection, objects: Sequence[OpenObject]) -> str:
    """The library's version string, read from its read-only data; "" where there is none."""
    for literal in detection.version_text:
        longest = ""
        for entry in objects:
            for text in entry.elf.text_around(literal.encode()):
                if match := re.fullmatch(detection.version_pattern, text):
                    version = str(match[1] if match.re.groups else match[0])
                    longest = max(longest, version, key=len)
        if longest:
            return longest
    return ""
