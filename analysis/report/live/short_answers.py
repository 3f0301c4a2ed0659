# SPDX-License-Identifier: GPL-2.0-only
"""Sessions of requests that wait no longer, and read no more of an answer, than OTLP needs.

Else a receiver that never ends its answer fills the memory of the watch, as requests reads all of
it, or holds up its pushes for ever.
"""

import importlib
from typing import Any, Final

from tlstax.analysis.report.live.request_limit import RequestLimit, limited_pools

ANSWER_MOST: Final = 1 << 16
"""Bytes; an answer of OTLP has some dozens."""


def short_session(requests: Any, patience_s: float) -> Any:
    """A session that cuts answers off at ANSWER_MOST bytes.

    A request that takes longer than its timeout, and than `patience_s`, raises ConnectionError of
    `requests`, which is the package.
    """
    urllib3 = importlib.import_module("urllib3")  # which requests needs
    errors = requests.exceptions
    limit = RequestLimit()
    pools = limited_pools(urllib3, limit)

    class ShortAnswers(requests.adapters.HTTPAdapter):  # type: ignore[misc]  # a class of `requests`
        def init_poolmanager(self, *asked: Any, **how: Any) -> None:
            super().init_poolmanager(*asked, **how)
            self.poolmanager.pool_classes_by_scheme = pools

        def proxy_manager_for(self, proxy: str, **how: Any) -> Any:
            made = super().proxy_manager_for(proxy, **how)
            if not proxy.lower().startswith("socks"):  # these connect in a way of their own
                made.pool_classes_by_scheme = pools
            return made

        def send(self, *asked: Any, timeout: float | None = None, **how: Any) -> Any:
            time_s = patience_s if timeout is None else min(timeout, patience_s)
            with limit.within(time_s):
                try:
                    answer = super().send(*asked, timeout=time_s, **how)
                    content = self._begin_of(answer)
                except urllib3.exceptions.HTTPError as error:
                    raise errors.ConnectionError(error) from error
                except errors.SSLError:
                    if not limit.is_over:
                        raise
                if limit.is_over:
                    raise errors.ConnectionError(f"it takes longer than {time_s:g} s")
            # As the property `content` does, which Session reads next.
            answer._content, answer._content_consumed = content, True
            return answer

        def _begin_of(self, answer: Any) -> bytes:
            content = bytearray()
            for byte in answer.raw.stream(1, decode_content=True):
                content += byte
                if len(content) >= ANSWER_MOST:
                    answer.close()
                    break
            return bytes(content)

    session = requests.Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, ShortAnswers())
    return session
