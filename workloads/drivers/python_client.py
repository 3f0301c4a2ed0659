# SPDX-License-Identifier: GPL-2.0-only
"""A Python client of a MySQL-family server at work: PyMySQL, or Connector/Python in either form.

tlstax starts this file as a program of its own, in an environment that has the library, and no
tlstax: `python python_client.py`. It reads its orders (one line of JSON) from standard input,
warms up, says that it stands at the gate, and works once it is told to go. Then it prints one line
of JSON. php_client.php and perl_client.pl do the same; clients.py says what the fields mean.
"""

import importlib
import json
import random
import ssl
import sys
import time
import types
from importlib.metadata import version as installed
from typing import Any, Protocol

NS_PER_S = 1_000_000_000
PATIENCE_S = 30
# Connector/Python asks for a collation of MySQL 8 by default, which MariaDB does not have.
COLLATION = "utf8mb4_general_ci"
LEGACY_SERVER_CONNECT = 0x4  # SSL_OP_LEGACY_SERVER_CONNECT
SESSION = "SHOW SESSION STATUS WHERE Variable_name IN ('Ssl_version', 'Ssl_cipher')"

Rows = list[tuple[Any, ...]]


class Client(Protocol):
    """One connection at a time, through one library."""

    version: str

    def connect(self) -> None:
        """Open the connection; whatever it raises ends the run."""

    def query(self, statement: str) -> Rows:
        """Run a statement and fetch what it returns."""

    def is_reused(self) -> bool | None:
        """Whether this connection resumed a TLS session; None where the library does not say."""

    def close(self) -> None:
        """Close the connection."""


class Sessions:
    """One TLS context for all connections, and the last session that a server gave."""

    def __init__(self, context: ssl.SSLContext, resumes: bool) -> None:
        self.context = context
        self._wrap, self._resumes = context.wrap_socket, resumes
        self._last: ssl.SSLSession | None = None
        self._socket: ssl.SSLSocket | None = None
        setattr(context, "wrap_socket", self.wrap_socket)  # noqa: B010 (a method is replaced)

    def wrap_socket(self, sock: Any, **options: Any) -> ssl.SSLSocket:
        """In the place of the context's own, which no library gives a session."""
        if self._resumes and self._last is not None:
            options["session"] = self._last
        self._socket = self._wrap(sock, **options)
        return self._socket

    def keep(self) -> None:
        """Remember the session of this connection: TLS 1.3 sends it after the handshake."""
        if self._resumes and self._socket is not None:
            self._last = self._socket.session

    def is_reused(self) -> bool:
        """As the client's TLS library says."""
        return bool(self._socket and self._socket.session_reused)


def tls_context(tls: dict[str, Any]) -> ssl.SSLContext:
    """A TLS context: the server's CA, our certificate, the versions and ciphers asked for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(tls["ca"])
    context.load_cert_chain(tls["certificate"], tls["key"])
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if tls["is_yassl"]:
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.options |= LEGACY_SERVER_CONNECT
    if tls["version"]:
        version = ssl.TLSVersion[tls["version"].replace(".", "_")]
        context.minimum_version = context.maximum_version = version
    if tls["ciphers"]:
        context.set_ciphers(tls["ciphers"])
    return context


def account(order: dict[str, Any]) -> dict[str, Any]:
    """Where to connect and as whom, by the names that all of these libraries have for it."""
    place = {"host": order["host"], "port": order["port"]}
    if order["socket"]:
        place = {"unix_socket": order["socket"]}
    who = {name: order[name] for name in ("user", "password", "database")}
    return {**place, **who, "autocommit": True}


class PyMySql:
    """PyMySQL with one TLS context; without being asked it would make one for each connection."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._library = importlib.import_module("pymysql")
        self.version = f"PyMySQL {installed('PyMySQL')}, {ssl.OPENSSL_VERSION}"
        tls = order["tls"]
        self._sessions = Sessions(tls_context(tls), order["resumes"]) if tls else None
        secure = {"ssl": self._sessions.context} if self._sessions else {"ssl_disabled": True}
        self._options = {**account(order), **secure, "connect_timeout": PATIENCE_S}

    def connect(self) -> None:
        """One connection."""
        self._connection = self._library.connect(**self._options)
        if self._sessions and not isinstance(self._connection._sock, ssl.SSLSocket):
            raise RuntimeError("it fell back to plaintext")

    def query(self, statement: str) -> Rows:
        """Text protocol, all rows fetched."""
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def is_reused(self) -> bool | None:
        """As the ssl module says."""
        return self._sessions.is_reused() if self._sessions else None

    def close(self) -> None:
        """COM_QUIT, and the session kept for the next."""
        if self._sessions:
            self._sessions.keep()
        self._connection.close()


class Connector:
    """Connector/Python, pure or with its C extension, as a program uses it by its options.

    The pure form makes a TLS context for each connection, and loads the host's CA store into each.
    It has no option to keep one, or to resume a session: where that is ordered, the function that
    makes the context is replaced.
    """

    def __init__(self, order: dict[str, Any]) -> None:
        library = importlib.import_module("mysql.connector")
        tls, is_pure = order["tls"], order["library"] != "connector-python-c"
        if not is_pure and not library.HAVE_CEXT:
            raise RuntimeError("this Connector/Python has no C extension that can be loaded here")
        self._connect = library.connect
        self.version = f"Connector/Python {installed('mysql-connector-python')}, " + (
            f"pure, {ssl.OPENSSL_VERSION}" if is_pure else "C extension with its own OpenSSL"
        )
        self._sessions = None
        if is_pure and tls and (order["resumes"] or order.get("keeps_context")):
            self._sessions = Sessions(tls_context(tls), order["resumes"])
            self._replace_context()
        self._options = {
            **account(order),
            **(self._tls_options(tls) if tls else {"ssl_disabled": True}),
            "use_pure": is_pure,
            "collation": COLLATION,
            "connection_timeout": PATIENCE_S,
        }
        self._wraps_socket = is_pure and bool(tls)

    @staticmethod
    def _tls_options(tls: dict[str, Any]) -> dict[str, Any]:
        options: dict[str, Any] = {
            "ssl_ca": tls["ca"],
            "ssl_cert": tls["certificate"],
            "ssl_key": tls["key"],
            "ssl_verify_cert": True,
        }
        if tls["version"]:
            options["tls_versions"] = [tls["version"]]
            if tls["suites"]:
                options["tls_ciphersuites"] = tls["suites"]
        return options

    def _replace_context(self) -> None:
        network = importlib.import_module("mysql.connector.network")
        sessions = self._sessions
        network.MySQLSocket.build_ssl_context = lambda *unused, **options: (
            sessions and sessions.context
        )

    def connect(self) -> None:
        """One connection."""
        self._connection = self._connect(**self._options)
        if self._wraps_socket and not isinstance(self._connection._socket.sock, ssl.SSLSocket):
            raise RuntimeError("it fell back to plaintext")

    def query(self, statement: str) -> Rows:
        """Text protocol, all rows fetched."""
        cursor = self._connection.cursor()
        cursor.execute(statement)
        rows = list(cursor.fetchall()) if cursor.with_rows else []
        cursor.close()
        return rows

    def is_reused(self) -> bool | None:
        """As the ssl module says; the C extension does not."""
        if self._wraps_socket:
            return bool(self._connection._socket.sock.session_reused)
        return None

    def close(self) -> None:
        """COM_QUIT, and the session kept for the next."""
        if self._sessions:
            self._sessions.keep()
        self._connection.close()


class Latencies:
    """The latencies of a run: exact sum, least and most, and samples that stay within a bound.

    Every `stride`-th is kept; once there are too many every other one is dropped and the stride
    doubled, so that they are spread evenly over the run.
    """

    def __init__(self, limit: int) -> None:
        self._limit, self._stride = limit, 1
        self.samples_ns: list[int] = []
        self.count, self.sum_ns, self.min_ns, self.max_ns = 0, 0, 1 << 62, 0

    def add(self, latency_ns: int) -> None:
        """Count one."""
        if self.count % self._stride == 0:
            if len(self.samples_ns) >= self._limit:
                self.samples_ns = self.samples_ns[::2]
                self._stride *= 2
            if self.count % self._stride == 0:
                self.samples_ns.append(latency_ns)
        self.count += 1
        self.sum_ns += latency_ns
        self.min_ns = min(self.min_ns, latency_ns)
        self.max_ns = max(self.max_ns, latency_ns)


class Run:
    """One run: its operations, and what is counted."""

    def __init__(self, client: Client, order: dict[str, Any]) -> None:
        self._client, self._order = client, order
        self._random = random.Random(order["seed"])
        self._latencies = Latencies(order["samples_max"])
        self.connection_count, self.reused_count = 0, 0
        self._may_reuse: bool | None = None

    def _connect(self) -> None:
        self._client.connect()
        self.connection_count += 1
        reused = self._client.is_reused()
        self._may_reuse = reused is not None
        self.reused_count += bool(reused)

    def _work(self) -> None:
        work, row = self._order["work"], self._random.randint(1, self._order["rows"])
        if work == "select_1":
            self._client.query("SELECT 1")
        elif work == "point_select":
            self._client.query(f"SELECT c FROM sbtest1 WHERE id={row}")
        else:
            self._client.query(f"INSERT INTO tlstax_short (k, c) VALUES ({row}, 'short')")
            self._client.query("SELECT k, c FROM tlstax_short WHERE id=LAST_INSERT_ID()")

    def _operation(self) -> None:
        if not self._order["connects"]:
            self._work()
            return
        self._connect()
        self._work()
        self._client.close()

    def warm_up(self) -> dict[str, str]:
        """The same work outside of the count; what the server says was negotiated."""
        for _ in range(self._order["warm_up_count"]):
            self._client.connect()
            self._work()
            negotiated = {row[0]: row[1] for row in self._client.query(SESSION)}
            self._client.close()
        return {str(name): str(value) for name, value in negotiated.items()}

    def go(self) -> dict[str, Any]:
        """All operations; the report's counts and times."""
        order = self._order
        cpu_ns, start_ns = time.process_time_ns(), time.monotonic_ns()
        end_ns = start_ns + int(order["seconds"] * NS_PER_S)
        if not order["connects"]:
            self._connect()
        due_ns = start_ns
        while self._latencies.count < order["operation_count"]:
            begin_ns = time.monotonic_ns()
            if order["rate_per_s"]:
                due_ns += int(self._random.expovariate(order["rate_per_s"]) * NS_PER_S)
                if due_ns >= end_ns:
                    break
                time.sleep(max(0, due_ns - begin_ns) / NS_PER_S)
                begin_ns = due_ns  # queueing is part of the latency
            if time.monotonic_ns() >= end_ns:
                break
            self._operation()
            self._latencies.add(time.monotonic_ns() - begin_ns)
        if not order["connects"]:
            self._client.close()
        latencies = self._latencies
        return {
            "start_ns": start_ns,
            "end_ns": time.monotonic_ns(),
            "cpu_ns": time.process_time_ns() - cpu_ns,
            "operation_count": latencies.count,
            "connection_count": self.connection_count,
            "reused_count": self.reused_count if self._may_reuse else None,
            "latency_sum_ns": latencies.sum_ns,
            "latency_min_ns": latencies.min_ns if latencies.count else 0,
            "latency_max_ns": latencies.max_ns,
            "samples_ns": latencies.samples_ns,
        }


def tell_failure(
    kind: type[BaseException], error: BaseException, trace: types.TracebackType | None
) -> None:
    """One line instead of a traceback."""
    print(f"FATAL: {kind.__name__}: {' '.join(str(error).split())}")


def main() -> int:
    """Orders, warm-up, gate, work, report."""
    order = json.loads(sys.stdin.readline())
    client: Client = PyMySql(order) if order["library"] == "pymysql" else Connector(order)
    run = Run(client, order)
    negotiated = run.warm_up()
    print("tlstax gate", flush=True)
    if sys.stdin.readline() != "tlstax go\n":  # tlstax has ended
        return 1
    report = run.go() | {"negotiated": negotiated, "version": client.version}
    print("tlstax report " + json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.excepthook = tell_failure
    sys.exit(main())
