# SPDX-License-Identifier: GPL-2.0-only
"""Sessions of requests that read no more of an answer than OTLP needs.

Else a receiver that never ends its answer fills the memory of the watch: requests reads all of it.
"""

import time
from typing import Any, Final

ANSWER_MOST: Final = 1 << 16
"""Bytes; an answer of OTLP has some dozens."""


def short_session(requests: Any, patience_s: float) -> Any:
    """A session that cuts answers off at ANSWER_MOST bytes, or after this time.

    `requests`: the package.
    """

    class ShortAnswers(requests.adapters.HTTPAdapter):  # type: ignore[misc]  # a class of `requests`
        def send(self, *asked: Any, **how: Any) -> Any:
            answer = super().send(*asked, **how)
            end_s, content = time.monotonic() + patience_s, bytearray()
            for byte in answer.raw.stream(1, decode_content=True):
                content += byte
                if len(content) >= ANSWER_MOST or time.monotonic() > end_s:
                    answer.close()
                    break
            # As the property `content` does, which Session reads next.
            answer._content, answer._content_consumed = bytes(content), True
            return answer

    session = requests.Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, ShortAnswers())
    return session
