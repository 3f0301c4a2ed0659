# SPDX-License-Identifier: GPL-2.0-only
"""What a change would save on all hosts of a data set: the models of `analysis.whatif` by host."""
