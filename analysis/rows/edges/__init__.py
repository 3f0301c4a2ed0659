# SPDX-License-Identifier: GPL-2.0-only
"""What the edges of windows cut: handshakes, commands and waits that lasted longer than those."""
