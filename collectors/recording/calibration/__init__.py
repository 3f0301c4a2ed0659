# SPDX-License-Identifier: GPL-2.0-only
"""Calibration stretches: what probes of level `record` tell of commands beside level `flow`."""
