# SPDX-License-Identifier: GPL-2.0-only
"""The servers that a recipe describes by names of its own."""

from dataclasses import replace
from typing import Final

from tlstax.workloads.matrix.recipe import HOST, ServerArm
from tlstax.workloads.recipe_table import RecipeTable
from tlstax.workloads.servers import other_openssl
from tlstax.workloads.servers.catalogue import find_kind, load_catalogue
from tlstax.workloads.servers.storage import Storage

POOL_MB_MAX: Final = 1 << 20


def take_servers(top: RecipeTable) -> dict[str, ServerArm]:
    """The servers [server.NAME]. Raises TlstaxError (USAGE) for what is unknown or misplaced."""
    found = {}
    for name, table in top.named("server"):
        kind = table.take("kind", str, name)
        known = (*load_catalogue(), HOST)
        if kind not in known:
            raise table.refuse(f"kind = {kind!r}, and known servers are {', '.join(known)}")
        arm = ServerArm() if kind == HOST else ServerArm(find_kind(kind))
        openssl = _openssl(table, arm)
        options = table.texts("options")
        found[name] = replace(arm, options=options, storage=_storage(table), openssl=openssl)
        table.refuse_rest()
    return found


def _openssl(table: RecipeTable, arm: ServerArm) -> str:
    """Whose OpenSSL a server is to load; '' if its own."""
    name = table.take("openssl", str, "")
    known = (other_openssl.HOST, *load_catalogue())
    if name and name not in known:
        raise table.refuse(f"openssl = {name!r}, and known servers are {', '.join(known)}")
    if name and (arm.kind is None or arm.kind.source.client != "debian-root"):
        roots = [kind.name for kind in load_catalogue().values() if kind.source.suite]
        raise table.refuse(f"openssl is for servers of a later Debian only: {', '.join(roots)}")
    return name


def _storage(table: RecipeTable) -> Storage | None:
    """How a server keeps its data; None where the table says nothing about it."""
    given: dict[str, bool] = {
        name: table.take(name, bool, False)
        for name in ("binlog", "adaptive_hash_index", "durable")
        if name in table
    }
    pool_mb = table.number("buffer_pool_mb", 0, POOL_MB_MAX, least=0) or None
    if pool_mb is None and not given:
        return None
    return Storage(
        binlog=given.get("binlog", False),
        adaptive_hash_index=given.get("adaptive_hash_index"),
        durable=given.get("durable", False),
        buffer_pool_mb=pool_mb,
    )
