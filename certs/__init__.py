# SPDX-License-Identifier: GPL-2.0-only
"""Certificates of a laboratory: a CA, a server's and a client's, made anew for each use."""
