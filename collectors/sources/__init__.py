# SPDX-License-Identifier: GPL-2.0-only
"""What is recorded beside the engine: one module or folder per source, and their registry."""
