# SPDX-License-Identifier: GPL-2.0-only
"""What commits wait for, where other servers have a part in it."""

from tlstax.collectors.capture.schema import Frame, OffcpuStack, Stack
from tlstax.tests.unit.findings.test_findings import BUSY, COMMANDS, LOCKS, S, capture, found, times


def test_who_waits_for_the_leader_of_a_group_waits_for_what_it_waits_for() -> None:
    """With AFTER_SYNC the leader of a group of commits alone waits for the replica."""
    names = [LOCKS["other_servers"], "THD::wait_for_wakeup_ready()"]
    rows = capture(
        ledger=times(BUSY | {("command", "blocked_futex"): S}),
        phase_counts=COMMANDS,
        frames=[
            Frame(at, "mariadbd", "", 0, name, 0, "dynsym", "") for at, name in enumerate(names, 1)
        ],
        stacks=[Stack(1, "1"), Stack(2, "2")],
        waits=[
            OffcpuStack(w, "command", "blocked_futex", 202, stack, None, 9, time_ns)
            for w in range(1, 9)
            for stack, time_ns in ((1, S // 10), (2, 9 * S // 10))
        ],
    )
    assert found(rows) == ["other_servers"]
    rows.waits = [row for row in rows.waits if row.user_stack_id == 2]
    assert found(rows) == ["commit_flush"]


def test_a_query_on_a_node_of_a_cluster_has_its_own_waits() -> None:
    """Each passes functions of wsrep; few of these wait."""
    names = ["lock_wait(que_thr_t*)", "wsrep_mysql_parse(THD*, char*, unsigned int)"]
    rows = capture(
        ledger=times(BUSY | {("command", "blocked_futex"): S}),
        phase_counts=COMMANDS,
        frames=[
            Frame(at, "mariadbd", "", 0, name, 0, "symtab", "") for at, name in enumerate(names, 1)
        ],
        stacks=[Stack(1, "1 2")],
        waits=[OffcpuStack(w, "command", "blocked_futex", 202, 1, None, 9, S) for w in range(1, 9)],
    )
    assert found(rows) == ["row_lock"]
    rows.frames[0] = rows.frames[0]._replace(symbol="wsrep::transaction::certify_commit(bool)")
    assert found(rows) == ["other_servers"]
