# SPDX-License-Identifier: GPL-2.0-only
"""What goes to the static recorder and what comes from it: plan files and streams."""
