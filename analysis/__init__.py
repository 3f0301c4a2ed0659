# SPDX-License-Identifier: GPL-2.0-only
"""From the rows of a capture to a document, and from a document to what people read."""
