# SPDX-License-Identifier: GPL-2.0-only
"""Everything that runs while probes are attached: BPF programs and maps, budget, schedule."""
