# SPDX-License-Identifier: GPL-2.0-only
"""Other hosts over ssh: a recorder there while it is needed, planning and captures here."""
