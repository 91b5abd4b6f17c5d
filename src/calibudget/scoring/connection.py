"""Requests to a model's server: retries with waiting, and a key that no message repeats."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import urllib3
from urllib3.util import Retry, Timeout

from calibudget.errors import ScoringError
from calibudget.messages import redacted

#: The variable of the environment that holds the server's key. A recipe can't name another: one that came from
#: somebody else could send any secret of the environment to any address.
KEY: Final = "CALIBUDGET_SERVER_KEY"
#: Statuses after which the same request may succeed; 500 is what many servers say to a request that they don't know.
_PASSING: Final = frozenset({408, 429, 502, 503, 504})
_RETRIES: Final = 6
#: Seconds of the first wait; each is twice the one before it.
_BACKOFF: Final = 0.5
#: Characters of a server's own words that a message tells.
_MOST_TOLD: Final = 200


class RefusedError(ScoringError):
    """A server's answer to a request that it doesn't take."""


class Connection:
    """A server of the interface that OpenAI's completions have, and others beside it.

    Args:
        base_url: such as http://host:8000/v1.
        requests: most connections that are kept.
        timeout: seconds to wait for a reply, or for its next part.

    Raises:
        ScoringError: an address that is none, or that holds a credential; a key that no header can hold.
    """

    def __init__(self, base_url: str, *, requests: int, timeout: float) -> None:
        if redacted(base_url) != base_url:
            raise ScoringError(f"base_url {redacted(base_url)}: holds a credential; put the key into {KEY}")
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ScoringError(f"base_url {base_url!r}: give an address such as http://host:8000/v1")
        self.base_url = base_url.rstrip("/")
        self._key = os.environ.get(KEY, "")
        if not (self._key.isascii() and self._key.isprintable()):
            raise ScoringError(f"{KEY}: holds characters that no header can; set it to the server's key alone")
        headers = {"user-agent": "calibudget"}
        if self._key:
            headers["authorization"] = f"Bearer {self._key}"
        retry = Retry(
            total=_RETRIES,
            redirect=False,
            allowed_methods=None,
            status_forcelist=_PASSING,
            backoff_factor=_BACKOFF,
            raise_on_status=False,
        )
        limit = Timeout(connect=min(timeout, 10.0), read=timeout)
        self._pool = urllib3.PoolManager(maxsize=requests, headers=headers, retries=retry, timeout=limit)

    def get(self, path: str) -> Any:
        """What the server has at a path; see `post`."""
        return self._reply("GET", path, None)

    def post(self, path: str, body: Mapping[str, object]) -> Any:
        """The reply to a request, as JSON.

        Args:
            path: below the base URL, or with a leading slash below the server's root (the base URL without /v1).
            body: what is posted, as JSON.

        Raises:
            RefusedError: the server doesn't take this request.
            ScoringError: it can't be reached, is too slow, wants another key, or answers what is no JSON.
        """
        return self._reply("POST", path, body)

    def _reply(self, method: str, path: str, body: Mapping[str, object] | None) -> Any:
        url = f"{self.base_url.removesuffix('/v1')}{path}" if path.startswith("/") else f"{self.base_url}/{path}"
        try:
            reply = self._pool.request(method, url, json=body, redirect=False)
        except urllib3.exceptions.HTTPError as error:
            why = error.reason if isinstance(error, urllib3.exceptions.MaxRetryError) else error
            raise ScoringError(f"server {url}: {self.told(str(why))} ({_RETRIES + 1} tries)") from None
        if reply.status in (401, 403):
            wrong = "takes another key than the one in" if self._key else "wants a key: set"
            raise ScoringError(f"server {url}: {wrong} {KEY}")
        if reply.status in _PASSING:
            raise ScoringError(
                f"server {url}: answers with status {reply.status} after {_RETRIES + 1} tries: {self._body(reply.data)}"
            )
        if reply.status != 200:
            raise RefusedError(f"status {reply.status}: {self._body(reply.data)}")
        try:
            return json.loads(reply.data)
        except (ValueError, RecursionError):
            raise RefusedError(f"a reply that is no JSON: {self._body(reply.data)}") from None

    def _body(self, data: bytes) -> str:
        """The beginning of a reply; the key goes before it is cut, so that no piece of it stays."""
        words = self.told(data[: 100 * _MOST_TOLD].decode("utf-8", "replace")).split()
        return " ".join(words)[:_MOST_TOLD] or "nothing"

    def told(self, text: str) -> str:
        """A server's words without the key, which it may repeat."""
        return redacted(text.replace(self._key, "[secret]") if self._key else text)
