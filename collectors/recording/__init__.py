# SPDX-License-Identifier: GPL-2.0-only
"""Records one process into one capture: attach as planned, cut windows, name addresses, detach."""
