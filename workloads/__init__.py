# SPDX-License-Identifier: GPL-2.0-only
"""Servers, clients and networks of a laboratory, and the experiments run on them."""
