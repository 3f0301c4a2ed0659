# SPDX-License-Identifier: GPL-2.0-only
"""One clock for all times of a recording: CLOCK_MONOTONIC.

It is not stepped, and it stands still while the host is suspended: a suspend is then in no window
and in no phase. Another clock in one place only would count the night that a laptop or a virtual
machine slept as a wait. CLOCK_BOOTTIME is read only to know that it slept (`make test-suspend`).
"""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PLACES = ("probes/bpf/*.[ch]", "collectors/recorder/*.[ch]", "collectors/recording/**/*.py")
OTHER = re.compile(
    r"CLOCK_(REALTIME|BOOTTIME|TAI)\w*|bpf_ktime_get_(boot|tai|coarse)_ns|start_boottime"
    r"|pthread_cond_timedwait|\btime\.time(_ns)?\(|datetime\.\w+\.now|gettimeofday"
)
ALLOWED = {
    "collectors/recorder/start.c": 1,
    "collectors/recorder/stream.h": 1,  # a comment
    "collectors/recorder/suspend.c": 1,
    "collectors/recorder/suspend.h": 1,  # a comment
    "probes/bpf/heartbeat.bpf.h": 1,
    "probes/bpf/heartbeat.h": 1,  # a comment
}
"""The date of the recording; how long the host was suspended."""


def test_no_other_clock_is_read_while_recording() -> None:
    files = [path for place in PLACES for path in ROOT.glob(place)]
    assert len(files) > 100
    found = {}
    for path in files:
        if count := len(OTHER.findall(path.read_text(encoding="utf-8"))):
            found[str(path.relative_to(ROOT))] = count
    assert found == ALLOWED


def test_the_programs_ask_for_that_clock() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("probes/bpf/*.[ch]"))
    assert set(re.findall(r"\bbpf_ktime_get\w*", text)) == {
        "bpf_ktime_get_ns",
        "bpf_ktime_get_boot_ns",
    }
    assert text.count("bpf_ktime_get_boot_ns") == 1
