# SPDX-License-Identifier: GPL-2.0-only
"""The target process: its mappings, files, build-ids, and the names of its addresses."""
