# SPDX-License-Identifier: GPL-2.0-only
"""The largest stacks of each hour of a watch as OTLP profiles, in the protocol's own form.

Profiles are in development in OTLP, and the SDK has no exporter for them: the messages are those of
opentelemetry-proto (opentelemetry.proto.profiles.v1development), `profile_push` posts them.
"""

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from tlstax import ExitCode, TlstaxError, __version__
from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import HOUR_NS
from tlstax.analysis.fleet.continuous.raw_hour import Rows
from tlstax.analysis.fleet.rollup.recording import Recording
from tlstax.analysis.fleet.rollup.stacks import KERNEL
from tlstax.analysis.report.live.otlp import package, resource

_FORM: Final = "opentelemetry.proto.profiles.v1development.profiles_pb2"
_SERVICE: Final = "opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2"
_COMMON: Final = "opentelemetry.proto.common.v1.common_pb2"
_TYPES: Final = {"on_cpu": "cpu", "off_cpu": "off_cpu"}
"""Type of the values by kind of stacks; their unit is ns."""
OPTION: Final = "--otlp-profiles"


class ProfileForm:
    """Makes requests of the rows of an hour."""

    def __init__(self) -> None:
        """Raises TlstaxError (HOST) where opentelemetry-proto is missing or has another form."""
        self._form = package(_FORM, "profiles", OPTION)
        self._service = package(_SERVICE, "profiles", OPTION)
        self._common = package(_COMMON, "profiles", OPTION)
        self._no_message = package("google.protobuf.message", "profiles", OPTION).DecodeError
        smallest: Rows = {
            columns.Stacks: [
                columns.Stacks("", 0, 0, "on_cpu", "command", "on_cpu", "", -1, 1, 0, 1, 1)
            ],
            columns.Stack: [columns.Stack(1, 0, [1])],
            columns.Frame: [columns.Frame(1, 0, "00", 1, "file", "f", "")],
        }
        try:
            self.request(Recording("", "", 0, 0), smallest)
        except (AttributeError, ValueError, TypeError) as error:
            raise TlstaxError(
                "cannot send profiles",
                "the installed opentelemetry-proto has another form of them, which OTLP develops",
                f"pip install --upgrade opentelemetry-proto, or leave out {OPTION}",
                ExitCode.HOST,
            ) from error

    def request(self, of: Recording, rows: Rows) -> Any:
        """ExportProfilesServiceRequest: a profile of each kind that the hour has stacks of."""
        made = self._service.ExportProfilesServiceRequest()
        whole = made.resource_profiles.add()
        for key, fact in resource(of.host, "profiles", OPTION).attributes.items():
            value = self._common.AnyValue(string_value=str(fact))
            whole.resource.attributes.append(self._common.KeyValue(key=key, value=value))
        scope = whole.scope_profiles.add()
        scope.scope.name, scope.scope.version = "tlstax", __version__
        dictionary = _Dictionary(self._form, self._common, made.dictionary, rows)
        for kind, value_type in _TYPES.items():
            mine = [
                row
                for row in rows.get(columns.Stacks, [])
                if isinstance(row, columns.Stacks) and row.kind == kind
            ]
            if mine:
                profile = scope.profiles.add()
                profile.sample_type.type_strindex = dictionary.string(value_type)
                profile.sample_type.unit_strindex = dictionary.string("nanoseconds")
                profile.time_unix_nano, profile.duration_nano = mine[0].start_wall_ns, HOUR_NS
                named = f"{of.source_id} {mine[0].start_wall_ns} {kind}"
                profile.profile_id = hashlib.blake2b(named.encode(), digest_size=16).digest()
                _fill(profile, mine, dictionary)
        return made

    def refused_count(self, content: bytes) -> int:
        """Profiles that an answer says were refused. Raises ValueError for no such answer."""
        answer = self._service.ExportProfilesServiceResponse()
        try:
            answer.ParseFromString(content)
        except self._no_message as error:
            raise ValueError("no answer of OTLP") from error
        return int(answer.partial_success.rejected_profiles)


def _fill(profile: Any, rows: Sequence[columns.Stacks], dictionary: "_Dictionary") -> None:
    """Rows that differ in nothing that is sent are one sample."""
    sums: dict[tuple[int, tuple[int, ...]], int] = defaultdict(int)
    for row in rows:
        facts = {"phase": row.phase, "state": row.state, "category": row.category}
        attributes = tuple(
            dictionary.attribute(f"tlstax.{name}", text) for name, text in facts.items() if text
        )
        sums[dictionary.stack(row.user_stack_id, row.kernel_stack_id), attributes] += row.time_ns
    for (stack, attributes), time_ns in sums.items():
        profile.samples.add(stack_index=stack, attribute_indices=attributes, values=[time_ns])


class _Dictionary:
    """What samples refer to: each thing once, and nothing (index 0) in each table."""

    def __init__(self, form: Any, common: Any, made: Any, rows: Rows) -> None:
        self._common = common
        self._made = made
        self._known: dict[tuple[str, Any], int] = {("string", ""): 0, ("stack", ()): 0}
        self._frames = {
            row.frame_id: row
            for row in rows.get(columns.Frame, [])
            if isinstance(row, columns.Frame)
        }
        self._stacks = {
            row.stack_id: row.frame_ids
            for row in rows.get(columns.Stack, [])
            if isinstance(row, columns.Stack)
        }
        made.string_table.append("")
        for table in ("mapping", "location", "function", "link", "attribute", "stack"):
            getattr(made, f"{table}_table").add()

    def _index(self, table: str, key: Any) -> tuple[int, Any]:
        """The index of a thing, and where it is new, the entry to be filled."""
        if (found := self._known.get((table, key))) is not None:
            return found, None
        entries = getattr(self._made, f"{table}_table")
        self._known[table, key] = at = len(entries)
        return at, entries.add()

    def string(self, text: str) -> int:
        """The index of a text."""
        if ("string", text) not in self._known:
            self._known["string", text] = len(self._made.string_table)
            self._made.string_table.append(text)
        return self._known["string", text]

    def attribute(self, name: str, text: str) -> int:
        """The index of a fact."""
        at, new = self._index("attribute", (name, text))
        if new is not None:
            new.key_strindex = self.string(name)
            new.value.CopyFrom(self._common.AnyValue(string_value=text))
        return at

    def stack(self, user_stack_id: int, kernel_stack_id: int) -> int:
        """The index of both stacks as one, leaf first; 0: neither is known."""
        ids = [self._stacks.get(one, []) for one in (kernel_stack_id, user_stack_id)]
        frames = [self._frames[one] for one in (*ids[0], *ids[1]) if one in self._frames]
        locations = tuple(self._location(frame) for frame in frames)
        at, new = self._index("stack", locations)
        if new is not None:
            new.location_indices.extend(locations)
        return at

    def _location(self, frame: columns.Frame) -> int:
        at, new = self._index("location", frame.frame_id)
        if new is not None:
            new.mapping_index = self._mapping(frame)
            new.address = frame.offset_bytes
            kind = "kernel" if frame.object == KERNEL else "native"
            new.attribute_indices.append(self.attribute("profile.frame.type", kind))
            if frame.symbol:
                new.lines.add(function_index=self._function(frame.symbol))
        return at

    def _function(self, symbol: str) -> int:
        at, new = self._index("function", symbol)
        if new is not None:
            new.name_strindex = self.string(symbol)
        return at

    def _mapping(self, frame: columns.Frame) -> int:
        """A file: addresses are offsets in it."""
        at, new = self._index("mapping", (frame.object, frame.build_id))
        if new is not None:
            new.filename_strindex = self.string(frame.object)
            if frame.build_id:
                name = "process.executable.build_id.gnu"
                new.attribute_indices.append(self.attribute(name, frame.build_id))
        mapping = self._made.mapping_table[at]
        mapping.memory_limit = max(mapping.memory_limit, frame.offset_bytes + 1)
        return at
