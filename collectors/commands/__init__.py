# SPDX-License-Identifier: GPL-2.0-only
"""The commands attach, probes, doctor, pmp and import: arguments and output, nothing else."""
