# SPDX-License-Identifier: GPL-2.0-only
"""The contract between recording and explaining: one SQLite file, see docs/capture.md."""
