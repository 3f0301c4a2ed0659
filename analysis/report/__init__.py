# SPDX-License-Identifier: GPL-2.0-only
"""Renderers of a document: terminal, JSON, HTML, folded stacks. They compute nothing."""
