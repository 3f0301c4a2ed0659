# SPDX-License-Identifier: GPL-2.0-only
"""Experiments of many runs: recipes with axes, sessions of servers, results that can be resumed."""
