# SPDX-License-Identifier: GPL-2.0-only
"""Rules about records and encryption at rest, where a recording has no boundaries of them."""

import pytest

from tlstax.analysis.classify.composition import Stacks
from tlstax.analysis.classify.taxonomy import builtin
from tlstax.analysis.findings.flow_commands import Windows, split
from tlstax.analysis.rows import ledger
from tlstax.analysis.rows.tables import Tables, groups
from tlstax.collectors.capture.schema import Frame, SampleStack, Stack
from tlstax.tests.unit.classify.test_command_split import SHARES, recording
from tlstax.tests.unit.findings.loads import MS, dense, found, load, sentence

NONE = Windows({}, {}, {})
CBC = "AES_cbc_encrypt"
CRYPTO, SERVER = "/usr/lib/libcrypto.so.3", "/usr/sbin/mariadbd"


def windows_of(rows: Tables) -> Windows:
    sums = ledger.by_window(rows.ledger)
    stacks = Stacks(rows.frames, rows.stacks)
    return split(Windows(sums, {}, {}), groups(rows)[0], rows, stacks, builtin())


def shares(windows: Windows) -> dict[str, float]:
    """Of the CPU time of commands."""
    times: dict[str, int] = {}
    for totals in windows.sums.values():
        for phase, time_ns in ledger.on_cpu(totals).items():
            times[phase] = times.get(phase, 0) + time_ns
    return {phase: time_ns / sum(times.values()) for phase, time_ns in times.items()}


# ---- the split ----


def test_stretches_correct_the_split_of_samples() -> None:
    """Samples see 60 % of reading and answering; probes in the stretches see all of it."""
    assert shares(windows_of(recording(12, seen=0.6))) == pytest.approx(SHARES, rel=0.05)


def test_without_stretches_samples_split_commands() -> None:
    seen = shares(windows_of(recording(4, seen=0.6)))
    assert seen["record_write"] == pytest.approx(0.6 * SHARES["record_write"], rel=0.05)
    assert seen["record_read"] == pytest.approx(0.6 * SHARES["record_read"], rel=0.05)


def test_no_time_is_lost_and_no_other_time_is_touched() -> None:
    rows = recording(12, seen=0.6)
    before, after = ledger.by_window(rows.ledger), windows_of(rows).sums
    for window_id, totals in before.items():
        assert sum(after[window_id].values()) == pytest.approx(sum(totals.values()), abs=4)
        assert after[window_id]["command", "runnable"] == totals["command", "runnable"]


def test_a_window_without_samples_keeps_its_commands() -> None:
    rows = recording(12)
    first = rows.windows[0].window_id
    rows.samples = [row for row in rows.samples if row.window_id != first]
    assert windows_of(rows).sums[first] == ledger.by_window(rows.ledger)[first]


def test_other_levels_are_left_alone() -> None:
    rows = recording(12)
    rows.windows = [window._replace(level="record") for window in rows.windows]
    stacks = Stacks(rows.frames, rows.stacks)
    assert split(NONE, groups(rows)[0], rows, stacks, builtin()) is NONE


# ---- the rules ----


def commands(of_ten: int, *names: str) -> Tables:
    """Commands at level flow; so many of ten of their samples have these functions."""
    rows = load("flow", {("command", "on_cpu"): 900 * MS}, {"command": 1000})
    rows.frames = [
        Frame(at, CRYPTO if at == 1 else SERVER, "", 0, name, 0, "dynsym", "")
        for at, name in enumerate((*names, "JOIN::exec()", "dispatch_command(THD*)"), 1)
    ]
    last = len(rows.frames)
    rows.stacks = [
        Stack(1, " ".join(str(at) for at in (*range(1, last - 1), last))),
        Stack(2, f"{last - 1} {last}"),
    ]
    rows.samples = [
        SampleStack(window.window_id, "command", -1, stack, None, 10 * count)
        for window in dense(rows)
        for stack, count in ((1, of_ten), (2, 10 - of_ten))
        if count
    ]
    return rows


@pytest.mark.parametrize(
    ("of_ten", "names", "expected"),
    [
        (5, (CBC, "my_aes_crypt_update", "buf_page_decrypt_after_read"), True),
        (5, (CBC, "_Z17fil_space_decryptPK11fil_space_t"), True),
        (5, (CBC, "Encryption::decrypt(IORequest const&)"), True),
        (1, (CBC, "my_aes_crypt_update"), False),
        (5, (CBC, "EVP_EncryptUpdate", "SSL_write"), False),
        (5, (CBC, "Item_func_aes_encrypt::val_str(String*)"), False),
    ],
)
def test_decrypted_pages_are_told_by_stacks(
    of_ten: int, names: tuple[str, ...], expected: bool
) -> None:
    rows = commands(of_ten, *names)
    assert ("tde_reads" in found(rows)) is expected
    if expected:
        assert sentence(rows, "tde_reads").endswith("TLS takes 0.0 %")


def test_encrypting_for_clients_is_no_encryption_at_rest_and_has_its_rule() -> None:
    rows = commands(5, CBC, "EVP_EncryptUpdate", "SSL_write")
    rows.targets = [rows.targets[0]._replace(tls_library="yaSSL", tls_version="unknown")]
    assert found(rows) == ["cipher_without_hardware"]


def test_ciphers_of_statements_are_no_records() -> None:
    """AES_ENCRYPT() of SQL: no function that writes to the client is on the stack."""
    rows = commands(5, CBC, "Item_func_aes_encrypt::val_str(String*)")
    rows.targets = [rows.targets[0]._replace(tls_library="yaSSL", tls_version="unknown")]
    assert found(rows) == []


def test_what_tls_takes_beside_locks_contains_records() -> None:
    """It was 0 %, as if the server sent plaintext."""
    rows = commands(6, CBC, "EVP_EncryptUpdate", "SSL_write")
    rows.ledger += [
        row._replace(state="blocked_lock", time_ns=row.time_ns // 2) for row in rows.ledger
    ]
    assert "TLS takes 40 %" in sentence(rows, "table_lock")
