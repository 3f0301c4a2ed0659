# SPDX-License-Identifier: GPL-2.0-only
"""What the clients count, how their samples are put together, what they are told."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tlstax import ExitCode, TlstaxError
from tlstax.workloads.drivers import DRIVERS, make_driver
from tlstax.workloads.drivers.clients import WORKS, ClientDriver, merge_samples
from tlstax.workloads.drivers.model import SAMPLES_MAX, DriveRequest
from tlstax.workloads.drivers.python_client import Latencies
from tlstax.workloads.drivers.sysbench import SCENARIOS, UNTOLD, SysbenchReport, losses_by_error
from tlstax.workloads.endpoint import Account, Endpoint
from tlstax.workloads.tls import TlsChoice

REPORT = """
Latency histogram (values are in milliseconds)
       value  ------------- distribution ------------- count
       0.018 |**************************************** 3
       1.667 |                                         1

tlstax thread=0 connects=1
tlstax events=4.000000000
tlstax reads=4.000000000
tlstax writes=0.000000000
tlstax other=0.000000000
tlstax errors=2.000000000
tlstax reconnects=0.000000000
tlstax latency_max=0.001700000
tlstax latency_pct=0.001667000
tlstax latency_sum=0.001724000
"""


def account() -> Account:
    here = Path("/nowhere")
    return Account("user", "secret", "database", here, here / "ca", here / "cert", here / "key")


def orders(processes_count: int, operation_count: int | None) -> list[dict[str, object]]:
    request = DriveRequest(
        Endpoint(host="127.0.0.1", port=1),
        account(),
        "tls",
        TlsChoice(version="TLSv1.3", cipher="TLS_AES_128_GCM_SHA256"),
        "connect",
        processes_count,
        operation_count=operation_count,
        rate_per_s=90,
    )
    driver = make_driver("pymysql")
    assert isinstance(driver, ClientDriver)
    return driver._orders(request)


@settings(deadline=None)
@given(st.integers(1, 100), st.integers(1, 100_000))
def test_operations_are_shared_out_to_the_last_one(processes: int, operations: int) -> None:
    counts = [int(str(order["operation_count"])) for order in orders(processes, operations)]
    assert sum(counts) == operations
    assert max(counts) - min(counts) <= 1


def test_a_rate_is_shared_and_seeds_are_not() -> None:
    told = orders(3, None)
    assert [order["rate_per_s"] for order in told] == [30, 30, 30]
    assert len({str(order["seed"]) for order in told}) == 3


def test_suites_of_tls_13_do_not_go_where_ciphers_belong() -> None:
    (told,) = orders(1, 1)
    tls = told["tls"]
    assert isinstance(tls, dict)
    assert (tls["ciphers"], tls["suites"]) == ("", ["TLS_AES_128_GCM_SHA256"])


@settings(deadline=None)
@given(st.integers(2, 60), st.integers(0, 500))
def test_latencies_stay_within_their_bound(limit: int, count: int) -> None:
    latencies = Latencies(limit)
    for number in range(count):
        latencies.add(number)
    kept = latencies.samples_ns
    assert len(kept) <= limit
    assert len(kept) >= min(count, limit // 2)
    assert latencies.sum_ns == sum(range(count))
    steps = {later - earlier for earlier, later in itertools.pairwise(kept)}
    assert len(steps) <= 1, "evenly spread"


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 8)), min_size=1, max_size=20))
def test_merged_samples_weigh_the_same(parts: list[tuple[int, int]]) -> None:
    given_parts = [
        ([number] * length, length * each) for number, (length, each) in enumerate(parts)
    ]
    merged = merge_samples(given_parts)
    total = sum(count for _, count in given_parts)
    assert len(merged) <= SAMPLES_MAX + len(parts)
    for number, (samples, count) in enumerate(given_parts):
        share = merged.count(number)
        assert 1 <= share <= len(samples)
        assert share == pytest.approx(len(merged) * count / total, abs=1 + len(parts))


def test_the_histogram_of_sysbench_is_read() -> None:
    report = SysbenchReport.parse(REPORT, 1, may_conflict=True)
    assert list(report.histogram) == [(18_000, 3), (1_667_000, 1)]
    with pytest.raises(TlstaxError, match="2 errors"):
        SysbenchReport.parse(REPORT, 1)


def test_losses_that_sysbench_printed_once_for_several_threads_are_counted() -> None:
    refused, full = "FATAL: error 1226: no more\n", "FATAL: error 1040: Too many connections\n"
    again = "(last message repeated 2 times)\n"
    assert losses_by_error(refused + again, 3) == {"1226 no more": 3}
    kinds = losses_by_error(refused + full + again + refused, 5)
    assert kinds == {"1226 no more": 2, "1040 Too many connections": 1, UNTOLD: 2}
    assert losses_by_error("nothing of it", 2) == {UNTOLD: 2}


def test_the_list_of_drivers_is_what_the_drivers_can_do() -> None:
    for name in DRIVERS:
        driver = make_driver(name)
        assert driver.name == name
        known = SCENARIOS if name == "sysbench" else WORKS
        assert {kind.name for kind in DRIVERS[name].scenarios} == set(known)
        if isinstance(driver, ClientDriver):
            assert DRIVERS[name].resumes == driver.resumes
            connects = {kind.name: kind.connects for kind in DRIVERS[name].scenarios}
            assert connects == {work: kind.connects for work, kind in WORKS.items()}


def test_an_unknown_distribution_is_refused() -> None:
    with pytest.raises(TlstaxError, match="special, uniform") as caught:
        make_driver("sysbench", {"distribution": "even"})
    assert caught.value.exit_code == ExitCode.USAGE
