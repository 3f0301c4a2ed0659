# SPDX-License-Identifier: GPL-2.0-only
"""Every interval that tlstax prints: units, medians, shares, quantiles, verdicts, sources of error.

docs/statistics.md says what each covers, and by which simulation.
"""
