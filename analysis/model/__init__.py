# SPDX-License-Identifier: GPL-2.0-only
"""The shape of every document: dataclasses that analysis fills and renderers print."""
