# SPDX-License-Identifier: GPL-2.0-only
"""Measure the cost of TLS records on this host for each cipher, with the OpenSSL of this Python.

A server and a client connection of libssl exchange data through memory; SSL_write and SSL_read of
records of several sizes are timed as CPU time of this thread. Ciphers and sizes alternate, so that
a drift of the machine affects all of them equally.
"""

import ctypes
import time
from collections.abc import Mapping, Sequence
from ctypes import c_char_p, c_int, c_long, c_size_t, c_void_p
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.certs.generate import Certificates
from tlstax.collectors.capture.ciphers import SUITES

SIZES: Final = (64, 256, 1024, 4096, 16384)
"""Bytes of a record's content; the last is the most that TLS allows."""
IN_FLIGHT_BYTES: Final = 1 << 16
"""Bytes written before they are read: they fit into a second-level cache, as in a server."""
IN_FLIGHT_COUNT: Final = 32
TURN_NS: Final = 1_500_000
_VERSIONS: Final = {"TLSv1.2": 0x0303, "TLSv1.3": 0x0304}
_SET_MIN_VERSION, _SET_MAX_VERSION, _PEM = 123, 124, 1  # ssl.h
_STEPS_MOST: Final = 20


class RecordLane:
    """One connection with one cipher: batches of records of every size, both ways."""

    def __init__(self, libssl: str, cipher: str, tls_version: str, files: Certificates) -> None:
        """`libssl`: path of the library. TlstaxError (HOST) if it does not negotiate `cipher`."""
        self._c = _declared(ctypes.CDLL(libssl))
        self._suite = SUITES[cipher][tls_version].encode()
        self._contexts = [self._context(f"TLS_{side}_method", tls_version, files)
                          for side in ("server", "client")]  # fmt: skip
        self._server, self._client = (self._c.SSL_new(context) for context in self._contexts)
        self._buffer = ctypes.create_string_buffer(SIZES[-1])
        self.times: dict[tuple[str, int], list[float]] = {
            (way, size): [] for way in ("sent", "received") for size in SIZES
        }
        try:
            self._connect()
        except BaseException:
            self.close()
            raise

    def _context(self, method: str, tls_version: str, files: Certificates) -> int:
        """A context that negotiates only this one suite."""
        c, number = self._c, _VERSIONS[tls_version]
        context: int = c.SSL_CTX_new(getattr(c, method)())
        done = [
            c.SSL_CTX_ctrl(context, _SET_MIN_VERSION, number, None),
            c.SSL_CTX_ctrl(context, _SET_MAX_VERSION, number, None),
            c.SSL_CTX_set_ciphersuites(context, self._suite)
            if tls_version == "TLSv1.3"
            else c.SSL_CTX_set_cipher_list(context, self._suite + b":@SECLEVEL=0"),
            c.SSL_CTX_use_certificate_file(context, str(files.server).encode(), _PEM),
            c.SSL_CTX_use_PrivateKey_file(context, str(files.server_key).encode(), _PEM),
            c.SSL_CTX_set_num_tickets(context, 0),
        ]
        if not all(done):
            raise self._failed("OpenSSL refuses the suite or its key")
        return context

    def _connect(self) -> None:
        """Run the handshake: both ends in turns, each reading what the other wrote."""
        c = self._c
        to_server, to_client = (c.BIO_new(c.BIO_s_mem()) for _ in range(2))
        for bio in (to_server, to_client):
            c.BIO_up_ref(bio)
        c.SSL_set_bio(self._server, to_server, to_client)
        c.SSL_set_bio(self._client, to_client, to_server)
        c.SSL_set_accept_state(self._server)
        c.SSL_set_connect_state(self._client)
        for _ in range(_STEPS_MOST):
            ended = {c.SSL_do_handshake(end) for end in (self._client, self._server)}
            if ended == {1}:
                break
        else:
            raise self._failed("the handshake did not end")
        agreed = c.SSL_CIPHER_get_name(c.SSL_get_current_cipher(self._server))
        if agreed != self._suite:
            raise self._failed(f"the handshake negotiated {agreed!r}")

    def batch(self) -> None:
        """Time a batch of records of each size; each batch is read after it was written."""
        c, buffer = self._c, self._buffer
        for size in SIZES:
            count = max(1, min(IN_FLIGHT_COUNT, IN_FLIGHT_BYTES // size))
            sent_ns = received_ns = records = 0
            while sent_ns + received_ns < TURN_NS:
                start_ns = time.thread_time_ns()
                sent = [c.SSL_write(self._server, buffer, size) for _ in range(count)]
                middle_ns = time.thread_time_ns()
                received = [c.SSL_read(self._client, buffer, size) for _ in range(count)]
                received_ns += time.thread_time_ns() - middle_ns
                sent_ns += middle_ns - start_ns
                records += count
                if {*sent, *received} != {size}:
                    raise self._failed("a record was not received completely")
            self.times["sent", size].append(sent_ns / records)
            self.times["received", size].append(received_ns / records)

    def close(self) -> None:
        """Free both ends, which also frees the memory between them."""
        for end in (self._server, self._client):
            self._c.SSL_free(end)
        for context in self._contexts:
            self._c.SSL_CTX_free(context)

    def _failed(self, why: str) -> TlstaxError:
        return TlstaxError(
            f"cannot measure records with {self._suite.decode()}",
            f"{why}; OpenSSL may have been built or configured without it",
            "Choose another --cipher",
            ExitCode.HOST,
        )


def measure_records(
    libssl: str, ciphers: Sequence[str], tls_version: str, files: Certificates, batches: int
) -> Mapping[str, Mapping[tuple[str, int], list[float]]]:
    """Batches of ns per record, by cipher, direction ('sent', 'received') and size."""
    lanes: dict[str, RecordLane] = {}
    try:
        for name in ciphers:
            lanes[name] = RecordLane(libssl, name, tls_version, files)
        for _ in range(batches):
            for lane in lanes.values():
                lane.batch()
        return {name: lane.times for name, lane in lanes.items()}
    finally:
        for lane in lanes.values():
            lane.close()


def _declared(c: ctypes.CDLL) -> ctypes.CDLL:
    """Declare the functions with pointers, which ctypes would otherwise cut to 32 bits."""
    pointer = c_void_p
    for name, result, arguments in (
        ("TLS_server_method", pointer, []),
        ("TLS_client_method", pointer, []),
        ("SSL_CTX_new", pointer, [pointer]),
        ("SSL_CTX_free", None, [pointer]),
        ("SSL_CTX_ctrl", c_long, [pointer, c_int, c_long, pointer]),
        ("SSL_CTX_set_ciphersuites", c_int, [pointer, c_char_p]),
        ("SSL_CTX_set_cipher_list", c_int, [pointer, c_char_p]),
        ("SSL_CTX_use_certificate_file", c_int, [pointer, c_char_p, c_int]),
        ("SSL_CTX_use_PrivateKey_file", c_int, [pointer, c_char_p, c_int]),
        ("SSL_CTX_set_num_tickets", c_int, [pointer, c_size_t]),
        ("SSL_new", pointer, [pointer]),
        ("SSL_free", None, [pointer]),
        ("BIO_s_mem", pointer, []),
        ("BIO_new", pointer, [pointer]),
        ("BIO_up_ref", c_int, [pointer]),
        ("SSL_set_bio", None, [pointer, pointer, pointer]),
        ("SSL_set_accept_state", None, [pointer]),
        ("SSL_set_connect_state", None, [pointer]),
        ("SSL_do_handshake", c_int, [pointer]),
        ("SSL_get_current_cipher", pointer, [pointer]),
        ("SSL_CIPHER_get_name", c_char_p, [pointer]),
        ("SSL_write", c_int, [pointer, pointer, c_int]),
        ("SSL_read", c_int, [pointer, pointer, c_int]),
    ):
        function = getattr(c, name)
        function.restype, function.argtypes = result, arguments
    return c
