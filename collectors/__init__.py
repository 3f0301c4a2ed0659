# SPDX-License-Identifier: GPL-2.0-only
"""From a running server to a capture: what is probed, recorded and stored."""
