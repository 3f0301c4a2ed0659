# SPDX-License-Identifier: GPL-2.0-only
"""Metrics of the host and its kernel: CPUs, a quota, refused connections, overhead; a replica."""

import numpy as np

from tlstax.analysis.findings.socket_metrics import add_acknowledgements
from tlstax.analysis.findings.window_metrics import Blocks, Metric, Metrics, exact, ratio


def add_host(found: Metrics, blocks: Blocks) -> None:
    """Who uses the host's CPUs, and what keeps the server from them."""
    for name in ("idle", "steal"):
        share = ratio(blocks.sums(f"host:{name}"), blocks.sums("host:all"))
        found[f"host_{name}_share"] = blocks.metric(share)
    # The server's threads count it as running. How much the host's share is of them, it does not
    # tell: what waits for its turn on a CPU while the hypervisor has it is not charged with it.
    taken = ratio(blocks.sums("account:stolen"), blocks.sums("account:on_cpu"))
    running = blocks.sums(*blocks.matching(lambda phase, state: state == "on_cpu"))
    served = blocks.sums(*blocks.matching(lambda phase, state: True))
    found["stolen_share"] = blocks.metric(np.clip(taken, 0.0, 1.0) * ratio(running, served))
    time_ns, own = blocks.sums("host:time"), blocks.sums("host:target")
    others = np.maximum(0.0, blocks.sums("host:busy") - own)
    known = own[0] > 0
    found["server_cpus"] = blocks.metric(ratio(own, time_ns)) if known else Metric(None)
    found["other_cpus"] = blocks.metric(ratio(others, time_ns)) if known else Metric(None)
    throttled = ratio(blocks.sums("quota:throttled"), blocks.sums("quota:periods"))
    found["throttled_share"] = blocks.metric(throttled)
    add_acknowledgements(found, blocks, served)
    drops = blocks.sums("tcp:dropped")
    found["listen_drop_count"] = exact(float(drops[0]))
    found["listen_drop_share"] = blocks.metric(ratio(drops, drops + blocks.sums("ended:connect")))


def add_replica(found: Metrics, blocks: Blocks) -> None:
    """What the thread of a replica does that fetches the binary log: TLS is what it decrypts.

    And what part of a source's sending is for its replicas.
    """
    whole, wanted = blocks.sums("replica:all"), blocks.sums("replica:wanted")
    found["replica_busy_share"] = blocks.metric(ratio(wanted, whole))
    tls, rest = blocks.sums("worked:replica_tls"), blocks.sums("worked:replica_rest")
    found["replica_samples_count"] = exact(float(tls[0] + rest[0]))
    found["replica_tls_cpu_share"] = blocks.share("worked:replica_tls", "worked:replica_rest")
    served = blocks.sums(*blocks.matching(lambda phase, state: True))
    part = np.where(tls + rest > 0, ratio(tls, tls + rest), 0.0)
    tls_ns = part * blocks.sums("replica:on_cpu")
    found["replica_tls_share"] = blocks.metric(ratio(tls_ns, served + wanted))
    sending = blocks.sums("time:record_write/on_cpu")
    found["feeding_share"] = blocks.metric(ratio(blocks.sums("feeding:sending"), sending))


def add_threads(found: Metrics, blocks: Blocks) -> None:
    """Creating and ending threads, by the samples of the whole recording."""
    whole = blocks.sums("sampled:thread", "sampled:rest")
    found["all_samples_count"] = exact(float(whole[0]))
    found["threads_cpu_share"] = blocks.share("sampled:thread", "sampled:rest")


def add_cost(found: Metrics, blocks: Blocks) -> None:
    """What the recording costs."""
    target = np.maximum(blocks.sums("cost:target"), blocks.sums("cost:floor"))
    inside = ("cost:probe_ns", "cost:function_ns", "cost:scheduler_ns", "cost:sample_ns")
    found["observer_share"] = blocks.metric(ratio(blocks.sums(*inside), target))
    found["probe_share"] = blocks.metric(ratio(blocks.sums(*inside[:2]), target))
