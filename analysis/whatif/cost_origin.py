# SPDX-License-Identifier: GPL-2.0-only
"""Whether costs of single TLS operations are those of the recorded server, or why they are not."""

from tlstax import ExitCode, TlstaxError
from tlstax.analysis import quantities
from tlstax.analysis.compare.selections import RecordingSelection
from tlstax.analysis.whatif import recorded
from tlstax.collectors.capture.micro_costs import MicroCosts


def require_library(owner: RecordingSelection, measured: str) -> None:
    """Refuse costs of another library than the server's. Raises TlstaxError (HOST).

    One that is linked into the server is another, even of the same branch: it was built otherwise.
    """
    target = owner.tables.targets[0] if owner.tables.targets else None
    name = quantities.library(target.tls_library, target.tls_version) if target else "?"
    is_own = target is not None and target.tls_linkage == "static"
    if is_own or not name.startswith("OpenSSL") or _branch(name) != _branch(measured):
        raise TlstaxError(
            f"the costs of {name} cannot be measured here",
            "the library is linked into the server, and is not this host's"
            if is_own
            else f"this host has {measured}, another library or another branch",
            "Record a server that uses this library with that key, and run `tlstax diff`",
            ExitCode.HOST,
        )


def require_host(side: RecordingSelection, costs: MicroCosts, *, is_given: bool) -> None:
    """Costs are those of the host that recorded. Raises TlstaxError (HOST)."""
    meta = side.tables.meta
    here = (costs.hostname, costs.cpu_model)
    if (meta.get("hostname"), meta.get("cpu_model")) != here:
        what = "the given costs were measured" if is_given else "costs would be measured"
        raise TlstaxError(
            "the costs are from another host",
            f"{what} on {here[0]} ({here[1]}), and {side.capture} was recorded on "
            f"{meta.get('hostname', 'an unknown host')} ({meta.get('cpu_model', 'unknown CPU')})",
            "Run this command there with --save-costs, then pass the file with --costs",
            ExitCode.HOST,
        )


def require_handshakes(side: RecordingSelection, costs: MicroCosts) -> None:
    """Costs are of the recorded TLS version and client certificates. Raises TlstaxError (USAGE)."""
    facts = recorded.handshake_facts(side)
    if (costs.tls_version, costs.mutual) == (facts.tls_version, facts.mutual):
        return
    texts = [
        f"{version} {'with' if mutual else 'without'} client certificates"
        for version, mutual in (
            (costs.tls_version, costs.mutual),
            (facts.tls_version, facts.mutual),
        )
    ]
    raise TlstaxError(
        "the costs are of other handshakes",
        f"they were measured for {texts[0]}, and {side.label} has {texts[1]}",
        "Measure them for this recording, without --costs",
        ExitCode.USAGE,
    )


def _branch(version: str) -> list[str]:
    """`OpenSSL 3.0.19` is of the branch 3.0."""
    return version.split()[-1].split(".")[:2]
