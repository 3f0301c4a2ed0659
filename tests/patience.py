# SPDX-License-Identifier: GPL-2.0-only
"""How long tests wait for a command that is expected to end by itself."""

import os

# Emulation (QEMU, by `make test-kernels`) starts Python ten times slower than a processor does.
COMMAND_S = 400.0 if os.environ.get("TLSTAX_EMULATED_CPU") == "1" else 120.0
