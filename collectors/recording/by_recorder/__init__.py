# SPDX-License-Identifier: GPL-2.0-only
"""Recording through the static recorder: it is started as a child, and its stream read live."""
