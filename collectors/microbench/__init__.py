# SPDX-License-Identifier: GPL-2.0-only
"""Cost of single TLS operations on this host, measured with its OpenSSL."""
