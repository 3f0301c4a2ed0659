# SPDX-License-Identifier: GPL-2.0-only
"""Post the profiles of each hour of a watch, and again until they are taken.

Headers, certificates and compression are those of the environment variables that the OpenTelemetry
SDK reads (OTEL_EXPORTER_OTLP_...), so that no secret is an argument.
"""

import gzip
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import SECOND_NS
from tlstax.analysis.fleet.continuous.explained_hours import KEPT_MOST
from tlstax.analysis.fleet.continuous.raw_hour import Rows
from tlstax.analysis.fleet.rollup.recording import Recording
from tlstax.analysis.report.live.otlp import TIMEOUT_S, endpoint_of, package
from tlstax.analysis.report.live.otlp_profiles import OPTION, ProfileForm
from tlstax.analysis.report.live.short_answers import short_session

PATH: Final = "/v1development/profiles"
_AGAIN_S: Final = 60.0
_LATER: Final = frozenset({429, 502, 503, 504})
"""Answers after which OTLP says to try again."""


class ProfilePush:
    """Posts profiles in a thread of its own until it is closed."""

    def __init__(self, address: str, tell: Callable[[str], None]) -> None:
        """Raises TlstaxError: HOST if the packages are missing, USAGE for settings of no use."""
        self.endpoint = endpoint_of(address, PATH)
        self._tell = tell
        self._form = ProfileForm()
        self._requests = package("requests", "profiles", OPTION)
        self._session = short_session(self._requests, TIMEOUT_S)
        parse = package("opentelemetry.util.re", "profiles", OPTION).parse_env_headers
        self._headers = {
            **parse(_setting("HEADERS"), liberal=True),
            "Content-Type": "application/x-protobuf",
        }
        self._is_packed = _setting("COMPRESSION") == "gzip"
        if self._is_packed:
            self._headers["Content-Encoding"] = "gzip"
        self._require_usable()
        self._authorities = _file("CERTIFICATE") or True
        own = (_file("CLIENT_CERTIFICATE"), _file("CLIENT_KEY"))
        self._own = own if all(own) else own[0] or None
        self._waiting: deque[tuple[Recording, Rows]] = deque()
        self._is_failing = False
        self._is_over = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def add(self, of: Recording, rows: Rows) -> None:
        """Post the stacks of an hour soon."""
        if rows.get(columns.Stacks):
            self._waiting.append((of, rows))
            self._wake.set()

    def close(self) -> None:
        """Try once more; waits for some seconds at most."""
        self._is_over = True
        self._wake.set()
        self._thread.join(2 * TIMEOUT_S)
        if self._thread.is_alive():
            self._tell("profiles were still being sent when the watch ended; the data set has them")
        self._session.close()

    def _require_usable(self) -> None:
        """Raise TlstaxError (USAGE) for an address or headers that nothing can be sent with.

        It repeats no header: they are passwords.
        """
        try:
            self._requests.Request("POST", self.endpoint, headers=self._headers).prepare()
            "".join(self._headers.values()).encode("latin-1")
        except ValueError:
            raise TlstaxError(
                f"cannot send profiles to {self.endpoint}",
                "it is no address, or a header has characters that HTTP does not send",
                f"Check {OPTION} and OTEL_EXPORTER_OTLP_HEADERS",
                ExitCode.USAGE,
            ) from None

    def _run(self) -> None:
        is_last = False
        while not is_last:
            self._wake.wait(_AGAIN_S if self._waiting else None)
            self._wake.clear()
            is_last = self._is_over
            self._send()
        while self._waiting:
            self._lose("the watch ends")

    def _send(self) -> None:
        while self._waiting:
            if len(self._waiting) > KEPT_MOST:
                self._lose("later hours wait, too")
                continue
            why, is_worth_trying = self._post(*self._waiting[0])
            if why and is_worth_trying:
                if not self._is_failing:
                    self._tell(
                        f"profiles cannot be sent to {self.endpoint}: {why}. That is tried again "
                        f"for {KEPT_MOST} hours"
                    )
                self._is_failing = True
                return
            if why:
                self._lose(f"{self.endpoint}: {why}")
                continue
            self._waiting.popleft()
            if self._is_failing:
                self._tell(f"profiles are sent to {self.endpoint} again")
            self._is_failing = False

    def _lose(self, why: str) -> None:
        """Give up the oldest hour."""
        _, rows = self._waiting.popleft()
        start_s = rows[columns.Stacks][0][1] // SECOND_NS
        hour = time.strftime("%Y-%m-%dT%H:00Z", time.gmtime(start_s))
        self._tell(f"profiles of the hour {hour} were not sent ({why}); the data set has them")

    def _post(self, of: Recording, rows: Rows) -> tuple[str, bool]:
        """Why an hour was not taken, or ''; and whether trying again may help."""
        try:
            content = self._form.request(of, rows).SerializeToString()
        except ValueError as error:  # a number or a text that its form does not hold
            return f"OTLP cannot say them: {error}", False
        try:
            answer = self._session.post(
                self.endpoint,
                data=gzip.compress(content) if self._is_packed else content,
                headers=self._headers,
                timeout=TIMEOUT_S,
                verify=self._authorities,
                cert=self._own,
                allow_redirects=False,
            )
        except self._requests.exceptions.SSLError:
            return "TLS with it fails (see OTEL_EXPORTER_OTLP_CERTIFICATE)", True
        except (OSError, ValueError):  # as all errors of requests and of urllib3 are
            return "it does not answer", True
        if answer.status_code != 200:
            return f"it answers {answer.status_code}", answer.status_code in _LATER
        try:
            refused = self._form.refused_count(answer.content)
        except ValueError:
            return "its answer is none of OTLP", False
        return (f"it refused {refused}", False) if refused else ("", False)


def _file(name: str) -> str:
    """A setting that names a file or folder. Raises TlstaxError (USAGE) if it is not there."""
    path = _setting(name)
    if path and not os.path.exists(path):
        raise TlstaxError(
            "cannot send profiles",
            f"{path}, as the environment says, is not there",
            f"Check OTEL_EXPORTER_OTLP_{name}",
            ExitCode.USAGE,
        )
    return path


def _setting(name: str) -> str:
    """A setting of profiles, else of all signals."""
    whole = os.environ.get(f"OTEL_EXPORTER_OTLP_{name}", "")
    return os.environ.get(f"OTEL_EXPORTER_OTLP_PROFILES_{name}", "") or whole
