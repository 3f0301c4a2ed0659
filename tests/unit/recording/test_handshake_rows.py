# SPDX-License-Identifier: GPL-2.0-only
"""What a handshake record says of its group, or of what failed."""

import pytest

from tlstax.collectors.recording.handshake_rows import handshake_row
from tlstax.collectors.recording.programs.ledger_layout import OUTCOMES, HandshakeRecord


@pytest.mark.parametrize(
    ("text", "outcome", "group", "failed_in"),
    [
        (b"X25519", "success", "X25519", ""),
        (b"", "success", "unknown", ""),
        (b"X25519MLKEM768", "failure", "X25519MLKEM768", ""),
        (b"p256_kyber768", "failure", "p256_kyber768", ""),
        (b"ssl3_read_bytes", "failure", "unknown", "ssl3_read_bytes"),
        (b"tls_process_client_cert", "failure", "unknown", "tls_process_client_cert"),
        # An error that was no reason to end.
        (b"inner_evp_generic_fetch", "success", "unknown", ""),
        (b"ssl3_read_bytes", "abandoned", "unknown", ""),
    ],
)
def test_a_text_is_the_group_or_the_function_that_reported_the_failure(
    text: bytes, outcome: str, group: str, failed_in: str
) -> None:
    record = HandshakeRecord(outcome=OUTCOMES.index(outcome), group=text)
    row = handshake_row(1, 1, record)
    assert (row.group_name, row.failed_in) == (group, failed_in)
