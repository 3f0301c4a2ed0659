# SPDX-License-Identifier: GPL-2.0-only
"""What a probe hit costs: measured, kept between runs, and by kind, code and CPUs."""
