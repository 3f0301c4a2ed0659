# SPDX-License-Identifier: GPL-2.0-only
"""Where handshakes fail, by the function of OpenSSL 3 that reported the error.

Names are those of libssl (ssl/statem/statem_srvr.c, ssl/record/rec_layer_s3.c), cut to the
23 letters that a record keeps.
"""

from typing import Final

PLACES: Final = ("alert", "client", "other", "unknown")
"""What the server was doing: it read, and got the client's alert; it checked the client's
certificate; something else."""
_BEGINS: Final = (
    ("alert", ("ssl3_read_bytes",)),
    ("client", ("tls_process_client_cert", "tls_process_client_rpk", "tls_process_cert_verify")),
)


def place_of(function: str) -> str:
    """One of PLACES."""
    if not function:
        return "unknown"
    return next((name for name, begins in _BEGINS if function.startswith(begins)), "other")
