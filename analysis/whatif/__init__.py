# SPDX-License-Identifier: GPL-2.0-only
"""Forecasts: what another key, cipher, library, resumption or pooling would cost."""
