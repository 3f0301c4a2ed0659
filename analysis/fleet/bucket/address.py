# SPDX-License-Identifier: GPL-2.0-only
"""The bucket of a data set, through pyarrow's S3 client: list, read, write, remove.

Credentials, region and endpoint come from where AWS tools look for them: AWS_ACCESS_KEY_ID and its
like, the profile of ~/.aws, the instance. They are in no argument, message or file of tlstax.
"""

import functools
import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.fleet.store.parquet_files import arrow
from tlstax.collectors.capture.printable import visible

SCHEME: Final = "s3://"
REQUESTS_MOST: Final = 8
"""At once."""
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]")
_PREFIX: Final = re.compile(r"[\w=.-]{1,200}(/[\w=.-]{1,200}){0,20}", re.ASCII)
_NOISE: Final = re.compile(r"\s*\(Request ID:[^)]*\)|;? ?Details:.*")
_CONNECT_S: Final = 5.0
_CHUNK_BYTES: Final = 1 << 20
_END_BYTES: Final = 1 << 16
"""Footers are smaller, but those of large merged objects."""
_SMALL_BYTES: Final = 4 << 20
"""Smaller objects are stored by one request, others in parts (S3: of 5 MB at least)."""


class Stored(NamedTuple):
    """An object of the bucket."""

    key: str
    """Below the prefix: tier=1h/table=…"""
    size_bytes: int
    changed_wall_ns: int
    """By the clock of the store."""


@dataclass(frozen=True)
class Bucket:
    """s3://NAME/PREFIX. Objects appear whole or not at all: that is what a put is."""

    name: str
    prefix: str = ""

    def __str__(self) -> str:
        return f"{SCHEME}{self._path('')}"

    def _path(self, key: str) -> str:
        return "/".join(part for part in (self.name, self.prefix, key) if part)

    def url(self, key: str) -> str:
        """An object's name in messages."""
        return f"{SCHEME}{self._path(key)}"

    def listing(self, folder: str) -> list[Stored]:
        """All objects below a folder, in order of their names. Raises TlstaxError (IO)."""
        fs = arrow("pyarrow.fs")
        top = self._path("")
        with self._told(f"list {self.url(folder)}"):
            selector = fs.FileSelector(self._path(folder), recursive=True, allow_not_found=True)
            found = _client().get_file_info(selector)
        return sorted(
            Stored(one.path.removeprefix(f"{top}/"), int(one.size), int(one.mtime_ns or 0))
            for one in found
            if one.type == fs.FileType.File
        )

    def require(self) -> None:
        """Raise TlstaxError (IO) for a bucket that is not there, or not ours."""
        with self._told(f"use {self}"):
            found = _client().get_file_info(self.name).type
            if found != arrow("pyarrow.fs").FileType.Directory:
                raise OSError("there is no such bucket")

    def read(self, key: str) -> Iterator[bytes]:
        """The content of an object, in pieces. Raises FileNotFoundError, TlstaxError (IO)."""
        with (
            self._told(f"read {self.url(key)}"),
            _client().open_input_stream(self._path(key)) as stream,
        ):
            while chunk := stream.read(_CHUNK_BYTES):
                yield chunk

    def footer(self, key: str) -> bytes:
        """The end of a Parquet object, with its whole footer.

        It is not taken apart here: what is wrong with it is no failure of the store. Raises
        FileNotFoundError, TlstaxError (IO).
        """
        with (
            self._told(f"read {self.url(key)}"),
            _client().open_input_file(self._path(key)) as stream,
        ):
            size_bytes = stream.size()
            found = b""
            for length in (_END_BYTES, size_bytes):
                length = min(length, size_bytes)
                found = bytes(stream.read_at(length, size_bytes - length))
                if len(found) >= int.from_bytes(found[-8:-4], "little") + 8:
                    break
            return found

    def put(self, local: Path, key: str) -> None:
        """Store a whole file under its final name. Raises TlstaxError (IO).

        Ctrl-C interrupts the main thread only, and only after the object is stored: what an
        interrupt leaves of a stream would be published as an object.
        """
        with self._told(f"write {self.url(key)}"), ThreadPoolExecutor(1) as other:
            other.submit(self._put, local, key).result()

    def _put(self, local: Path, key: str) -> None:
        with arrow().memory_map(str(local)) as source:
            client = _client() if source.size() <= _SMALL_BYTES else _client(is_small=False)
            stream = client.open_output_stream(self._path(key))
            try:
                stream.write(source.read_buffer())
            finally:
                stream.close()  # after an error it raises that again

    def remove(self, key: str) -> None:
        """Remove an object, if it is there. Raises TlstaxError (IO)."""
        with self._told(f"remove {self.url(key)}"), suppress(FileNotFoundError):
            _client().delete_file(self._path(key))

    @contextmanager
    def _told(self, action: str) -> Iterator[None]:
        """What the store answers, as an error in words."""
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            why = _NOISE.sub("", visible(" ".join(str(error).split())))[:300].rstrip(".")
            raise TlstaxError(
                f"cannot {action}",
                why or type(error).__name__,
                "Check the bucket, the credentials of this environment, AWS_ENDPOINT_URL and "
                "AWS_REGION",
                ExitCode.IO,
            ) from error


def parse(text: str) -> Bucket:
    """The bucket of an address. Raises TlstaxError (USAGE), which does not repeat it.

    pyarrow would take keys and settings from an address: `ps` shows them to everybody.
    """
    name, _, prefix = text.removeprefix(SCHEME).partition("/")
    prefix = prefix.strip("/")
    is_plain = not prefix or _PREFIX.fullmatch(prefix)
    if not _BUCKET.fullmatch(name) or not is_plain or {".", ".."} & set(prefix.split("/")):
        raise TlstaxError(
            "cannot use this address of a bucket",
            "it is not of the form s3://BUCKET/PREFIX, of letters, digits and _ = . -",
            "Credentials and settings do not belong into it: set AWS_PROFILE, AWS_ENDPOINT_URL and "
            "their like in the environment",
            ExitCode.USAGE,
        )
    return Bucket(name, prefix)


def endpoint(environment: Mapping[str, str]) -> dict[str, str]:
    """Options of the client for a store that is not Amazon's. Raises TlstaxError (USAGE)."""
    made = {}
    if authorities := environment.get("AWS_CA_BUNDLE"):
        made["tls_ca_file_path"] = authorities
    if region := environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION"):
        made["region"] = region
    name = "AWS_ENDPOINT_URL_S3" if environment.get("AWS_ENDPOINT_URL_S3") else "AWS_ENDPOINT_URL"
    if not environment.get(name):
        return made
    try:
        parts = urlsplit(environment[name])
        is_plain = "@" not in parts.netloc and not parts.query and parts.path in ("", "/")
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of a port or an IPv6 address
        is_plain = is_usable = False
    if not (is_plain and is_usable):
        raise TlstaxError(
            f"cannot use {name}",
            "it is not of the form https://HOST:PORT",
            f"Set {name} to the address of the store alone",
            ExitCode.USAGE,
        )
    return {
        "region": "us-east-1",
        **made,
        "scheme": parts.scheme,
        "endpoint_override": parts.netloc,
    }


@functools.cache
def _client(*, is_small: bool = True) -> Any:
    """One of each kind for the process: it keeps its connections.

    For small objects a stream sends nothing before its end: one request in place of three. A larger
    one that is begun so late, and refused, would be published without content.
    """
    return arrow("pyarrow.fs").S3FileSystem(
        connect_timeout=_CONNECT_S,
        allow_delayed_open=is_small,
        **endpoint(os.environ),
    )
