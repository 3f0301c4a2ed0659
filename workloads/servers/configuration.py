# SPDX-License-Identifier: GPL-2.0-only
"""The option files of a private server and its clients, as text. Nothing here touches a disk.

Passwords go into option files (mode 0600) and nowhere else: never into an argument list, where
every user of the host could read them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

DATABASE = "tlstax_bench"
USER_PLAINTEXT = "tlstax_plaintext"
USER_TLS = "tlstax_tls"
USER_STATUS = "tlstax_status"
USER_LOAD = "tlstax_load"
USERS = (USER_PLAINTEXT, USER_TLS, USER_STATUS, USER_LOAD)


@dataclass(frozen=True)
class ServerSettings:
    """What a private server is asked for; sizes suit a data set that always fits in memory."""

    port: int
    max_connection_count: int = 512
    buffer_pool_bytes: int = 128 * 1024 * 1024
    tls_version: str = "TLSv1.2,TLSv1.3"
    tls_cipher: str | None = None  # OpenSSL names; None leaves the library's own list


def _own_places(section: str, settings: ServerSettings, directory: Path) -> str:
    """What keeps the server to its own files and to this host; the head of both files below."""
    return f"""\
# Written by tlstax for a private server that measures and is then thrown away.
[{section}]
datadir = {directory}/data
socket = {directory}/mariadb.sock
pid_file = {directory}/mariadb.pid
log_error = {directory}/error.log
tmpdir = {directory}

# Reachable from this host only.
bind_address = 127.0.0.1
port = {settings.port}
local_infile = OFF
secure_file_priv = {directory}
loose_feedback = OFF

ssl_ca = {directory}/ca.pem
ssl_cert = {directory}/server-cert.pem
ssl_key = {directory}/server-key.pem
"""


def server_options(settings: ServerSettings, directory: Path) -> str:
    """The server's my.cnf; `directory` belongs to the server's user alone.

    `directory` holds data/, ca.pem, server-cert.pem and server-key.pem.
    """
    cipher = f"ssl_cipher = {settings.tls_cipher}\n" if settings.tls_cipher else ""
    return f"""\
{_own_places("mariadbd", settings, directory)}\
tls_version = {settings.tls_version}
{cipher}
# A connection must cost what its protocol costs, not a name look-up or a refusal.
skip_name_resolve = ON
max_connections = {settings.max_connection_count}
max_connect_errors = 4294967295
back_log = 1024

# One thread per connection, and threads are kept for the next one: a connect storm then measures
# connects, not thread creation.
thread_handling = one-thread-per-connection
thread_cache_size = {settings.max_connection_count}

# Queries answer from memory: what remains is the protocol, the statement and TLS.
innodb_buffer_pool_size = {settings.buffer_pool_bytes}
innodb_buffer_pool_dump_at_shutdown = OFF
innodb_buffer_pool_load_at_startup = OFF
innodb_log_file_size = 33554432
innodb_stats_auto_recalc = OFF
innodb_flush_log_at_trx_commit = 2
table_open_cache = 400
# The query cache would answer repeated statements before they are executed.
query_cache_type = OFF
query_cache_size = 0

# The server's own instruments cost time inside what is measured.
performance_schema = OFF
skip_log_bin
slow_query_log = OFF
general_log = OFF
"""


def common_options(settings: ServerSettings, directory: Path, further: Sequence[str] = ()) -> str:
    """The my.cnf of any MySQL-family server from 5.6 on.

    Options that only some of them know are marked loose. `directory` is as for `server_options`;
    `further` are lines that only this server needs.
    """
    lines = "\n".join(further)
    return f"""\
{_own_places("mysqld", settings, directory)}
# For the same reasons as above: only the protocol, the statement and TLS are to remain.
skip_name_resolve = ON
max_connections = {settings.max_connection_count}
max_connect_errors = 4294967295
back_log = 1024
thread_cache_size = {settings.max_connection_count}
innodb_buffer_pool_size = {settings.buffer_pool_bytes}
innodb_flush_log_at_trx_commit = 2
table_open_cache = 400
loose_query_cache_type = 0
loose_query_cache_size = 0
performance_schema = OFF
slow_query_log = OFF
general_log = OFF
{lines}
"""


def client_options(socket: Path, user: str, password: str = "") -> str:
    """An option file of the `mariadb` client, for a connection through the Unix socket.

    In plaintext: Debian's client speaks TLS even there unless it is told not to, and would count
    as a handshake. Without a password the server asks the kernel who is calling.
    """
    return f"""\
[client]
user = {user}
password = {password}
socket = {socket}
protocol = socket
skip-ssl
connect-timeout = 5
"""


def sysbench_options(
    port: int,
    user: str,
    password: str,
    *,
    tls: bool,
    host: str = "127.0.0.1",
    socket: Path | None = None,
) -> str:
    """A sysbench --config-file: the only way to give sysbench 1.0 a password outside of argv.

    A switch that is named there is on, whatever its value: `mysql-ssl=off` means TLS. So plaintext
    must not mention it.
    """
    address = f"mysql-socket={socket}" if socket else f"mysql-host={host}\nmysql-port={port}"
    text = f"""\
db-driver=mysql
{address}
mysql-user={user}
mysql-password={password}
mysql-db={DATABASE}
"""
    return text + "mysql-ssl=on\n" if tls else text


def account_statements(passwords: Mapping[str, str]) -> list[str]:
    """SQL that makes the accounts: two that drive load over TCP, one that reads counters.

    USER_LOAD comes from anywhere, with TLS or without: by way of tunnels and namespaces, and in
    both arms alike.

    `passwords` holds one for each of USERS, in hexadecimal: nothing in them needs quoting.
    """
    for password in passwords.values():
        bytes.fromhex(password)  # ValueError: a caller's mistake
    loader, local = "@'127.0.0.1' IDENTIFIED BY", "@localhost IDENTIFIED BY"
    return [
        f"CREATE DATABASE {DATABASE}",
        f"CREATE USER {USER_PLAINTEXT}{loader} '{passwords[USER_PLAINTEXT]}'",
        f"CREATE USER {USER_TLS}{loader} '{passwords[USER_TLS]}' REQUIRE SSL",
        f"CREATE USER {USER_STATUS}{local} '{passwords[USER_STATUS]}'",
        f"GRANT ALL ON {DATABASE}.* TO {USER_PLAINTEXT}@'127.0.0.1', {USER_TLS}@'127.0.0.1'",
        # Both, because an anonymous account of localhost would be preferred to '%'.
        *(
            statement
            for host in ("localhost", "%")
            for statement in (
                f"CREATE USER {USER_LOAD}@'{host}' IDENTIFIED BY '{passwords[USER_LOAD]}'",
                f"GRANT ALL ON {DATABASE}.* TO {USER_LOAD}@'{host}'",
            )
        ),
    ]
