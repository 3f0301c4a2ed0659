# SPDX-License-Identifier: GPL-2.0-only
"""Fetches executables and debug files by build-id from debuginfod servers.

Off unless DEBUGINFOD_URLS names a server, as for elfutils and gdb. What was fetched is kept below
DEBUGINFOD_CACHE_PATH, else below debuginfod/ of tlstax.cache_directory(), and is used only if its
build-id is the one that was asked for. DEBUGINFOD_MAXSIZE (bytes), DEBUGINFOD_MAXTIME (seconds for
a file) and DEBUGINFOD_TIMEOUT (seconds of silence) are limits; 0 is the default.
"""

import http.client
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Final, Literal

from tlstax import ExitCode, TlstaxError, __version__, cache_directory
from tlstax.collectors.process.build_id import build_id_of

Kind = Literal["executable", "debuginfo"]

URLS: Final = "DEBUGINFOD_URLS"
BYTES_MOST: Final = 2 << 30
SECONDS_MOST: Final = 300
SILENT_SECONDS_MOST: Final = 30
_CHUNK_BYTES: Final = 1 << 16
_BUILD_ID: Final = re.compile(r"[0-9a-f]{8,64}")
_POLICY: Final = "ima:"  # words of elfutils between the URLs; build-ids are verified here instead


class DebugServer:
    """The servers of one environment, and what they could not give."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Use `from_environment`."""
        self._urls = [_url(word) for word in environment.get(URLS, "").split() if _is_url(word)]
        named = environment.get("DEBUGINFOD_CACHE_PATH", "")
        self._cache = Path(named) if named else cache_directory() / "debuginfod"
        self._bytes_most = _limit(environment, "DEBUGINFOD_MAXSIZE", BYTES_MOST)
        self._seconds_most = _limit(environment, "DEBUGINFOD_MAXTIME", SECONDS_MOST)
        self._silent_most = _limit(environment, "DEBUGINFOD_TIMEOUT", SILENT_SECONDS_MOST)
        self._failed: dict[tuple[str, str], str] = {}

    @classmethod
    def from_environment(cls) -> "DebugServer | None":
        """The servers that DEBUGINFOD_URLS names; None if it names none.

        Raises TlstaxError (USAGE) for a variable that cannot be used.
        """
        server = cls(os.environ)
        return server if server._urls else None

    def fetch(self, build_id: str, kind: Kind) -> Path | None:
        """The file of that build, kept or fetched; None if no server has it: see `why_not`."""
        if not _BUILD_ID.fullmatch(build_id) or (build_id, kind) in self._failed:
            return None
        if kept := self.kept(build_id, kind):
            return kept
        path = self._cache / build_id / kind
        reasons = []
        for url in self._urls:
            try:
                self._download(f"{url}/buildid/{build_id}/{kind}", path, build_id)
                return path
            except (OSError, ValueError, http.client.HTTPException) as error:
                reasons.append(f"{url}: {_reason(error)}")
        self._failed[build_id, kind] = "; ".join(reasons)
        return None

    def kept(self, build_id: str, kind: Kind) -> Path | None:
        """The file of that build if it was fetched before; no server is asked."""
        path = self._cache / build_id / kind
        return path if _BUILD_ID.fullmatch(build_id) and _is_build(path, build_id) else None

    def why_not(self, build_id: str, kind: Kind) -> str:
        """Why `fetch` had nothing; '' if it was not asked."""
        return self._failed.get((build_id, kind), "")

    def _download(self, url: str, path: Path, build_id: str) -> None:
        """Store the answer as `path`. Raises OSError, ValueError or HTTPException."""
        request = urllib.request.Request(url, headers={"User-Agent": f"tlstax/{__version__}"})
        with urllib.request.urlopen(request, timeout=self._silent_most) as answer:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as scratch:
                try:
                    self._copy(answer.read1, scratch)
                    scratch.flush()
                    if build_id_of(scratch.fileno()) != build_id:
                        raise ValueError("the answer is not a file of that build-id")
                    os.replace(scratch.name, path)
                finally:
                    Path(scratch.name).unlink(missing_ok=True)

    def _copy(self, read: Callable[[int], bytes], scratch: IO[bytes]) -> None:
        end, size = time.monotonic() + self._seconds_most, 0
        while part := read(_CHUNK_BYTES):
            size += len(part)
            if size > self._bytes_most:
                raise ValueError(f"larger than DEBUGINFOD_MAXSIZE ({self._bytes_most} bytes)")
            if time.monotonic() > end:
                raise ValueError(f"not complete after DEBUGINFOD_MAXTIME ({self._seconds_most} s)")
            scratch.write(part)


def _is_url(word: str) -> bool:
    return not word.startswith(_POLICY)


def _url(word: str) -> str:
    if word.startswith(("http://", "https://")):
        return word.rstrip("/")
    raise TlstaxError(
        f"cannot use {URLS}",
        f"{word} is not the address of a server",
        "Name servers as http://HOST or https://HOST, separated by spaces, or unset it",
        ExitCode.USAGE,
    )


def _limit(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "") or "0"
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text) or default
    raise TlstaxError(
        f"cannot use {name}", f"{text} is not a whole number", "Correct or unset it", ExitCode.USAGE
    )


def _is_build(path: Path, build_id: str) -> bool:
    with suppress(OSError), path.open("rb") as file:
        return build_id_of(file.fileno()) == build_id
    return False


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return "does not have it" if error.code == 404 else f"HTTP status {error.code}"
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, TimeoutError):
        return "no answer in time"
    return (isinstance(reason, OSError) and reason.strerror) or str(reason) or type(reason).__name__
