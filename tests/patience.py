# SPDX-License-Identifier: GPL-2.0-only
"""How long tests wait, where nothing is measured by it."""

import os

# Emulation (QEMU, by `make test-kernels`) starts Python ten times slower than a processor does.
IS_EMULATED = os.environ.get("TLSTAX_EMULATED_CPU") == "1"
COMMAND_S = 400.0 if IS_EMULATED else 120.0
"""For a command that is expected to end by itself."""
