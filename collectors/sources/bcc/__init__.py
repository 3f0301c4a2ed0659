# SPDX-License-Identifier: GPL-2.0-only
"""bcc's tools and libbpf-tools as sources: child processes, their text, its rows in a capture."""
