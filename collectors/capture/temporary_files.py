# SPDX-License-Identifier: GPL-2.0-only
"""Temporary files, which many commands have to make."""

from tlstax import ExitCode, TlstaxError


def no_temporary_folder(error: FileNotFoundError) -> TlstaxError:
    """The error (IO) of a host where no folder for them can be written.

    Raises `error` where one can: then it has another cause.
    """
    import tempfile  # imported here: attach must stay small

    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        return TlstaxError(
            "cannot make a temporary file",
            "neither TMPDIR nor /tmp, /var/tmp or the current folder can be written",
            "Set TMPDIR to a folder that you may write to and that has room",
            ExitCode.IO,
        )
    raise error
