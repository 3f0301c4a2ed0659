# SPDX-License-Identifier: GPL-2.0-only
"""Findings that no case expects first, nor together with others, and why.

A further finding that a case accepts is not injected by it: the case passes without it.
docs/findings.md tells the same to its readers; a test compares the ids.
"""

UNINJECTED = {
    "steal": "no program in a guest can make the hypervisor take its CPUs",
    "adaptive_hash": "not reproduced on two CPUs (docs/findings/adaptive-hash-index.md)",
    "latch": "InnoDB spins first: threads on two CPUs hardly wait for its latches",
    "cpu_quota_at_times": "cpu_quota, of a quota that is used up in some periods only",
    "plaintext_baseline": "a fault of an experiment, which its own checks refuse first",
    "client_work": "needs both arms of an experiment, as the demo has, with which it was made",
    "failed_handshakes": "the last resort of five rules that say why; four have a case",
    "fetch_tax": "fetch_over_signature at a share that depends on the host",
    "certificate_refused": "for libraries that do not tell which side refused; the cases' one does",
    "library_wait": "for stacks that end in the C library; the cases' are walked on (name_lookup)",
    "client_waits": "what client_pause and saturating are where no rule says why clients wait",
}
