# SPDX-License-Identifier: GPL-2.0-only
"""From definitions, binary and process to a plan of probes. Nothing is attached here."""
