# SPDX-License-Identifier: GPL-2.0-only
"""Snapshots of all threads by pt-pmp and gdb, for `tlstax pmp`; no source of `attach --collect`."""
