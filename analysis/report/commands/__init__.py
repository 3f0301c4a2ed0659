# SPDX-License-Identifier: GPL-2.0-only
"""Commands that read captures: report, diff, whatif, export, flamegraph, top."""
