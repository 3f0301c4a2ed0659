# SPDX-License-Identifier: GPL-2.0-only
"""What single TLS operations cost on this host, measured with its OpenSSL."""
