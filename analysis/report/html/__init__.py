# SPDX-License-Identifier: GPL-2.0-only
"""Documents as one self-contained HTML page, and flame graphs as SVG."""
