"""An OpenAI-compatible endpoint: many calls at once, each bounded in time, each with an outcome."""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import contextlib
import dataclasses
import json
import os
import random
import threading
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

from mimesis_jax.remote import recordings as recorded
from mimesis_jax.remote.said import AGAIN, Fault, Said, read

Message = dict[str, str]


@dataclasses.dataclass(frozen=True)
class Config:
    """Where a model is and how it is asked.

    url: base URL, up to and with the version ("http://127.0.0.1:8000/v1").
    key: name of the environment variable that holds the key; "" for an endpoint without one.
    timeout: seconds of one attempt. retries: attempts after the first. backoff: seconds before the
      second attempt; doubles each time, up to `longest`, of which a random half to all is waited.
      An endpoint that asks for more than `longest` is not asked again.
    at_once: most calls open at a time; the others wait for their turn.
    temperature, top_p, tokens (most of a reply): sampling; None leaves the endpoint's own.
    extra: further fields of the request's body, as they are.
    """

    url: str
    model: str
    key: str = "OPENAI_API_KEY"
    timeout: float = 30.0
    retries: int = 3
    backoff: float = 0.5
    longest: float = 20.0
    at_once: int = 16
    temperature: float | None = 1.0
    top_p: float | None = None
    tokens: int | None = 512
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("url must be http://HOST/... or https://HOST/...: see Config.url")
        if parts.username or parts.password or parts.query:
            raise ValueError(
                "url carries a name, a password or a query: keys come from the environment only, "
                "put the key in a variable and its name in Config.key"
            )
        if self.timeout <= 0 or self.at_once < 1 or self.retries < 0 or self.backoff < 0:
            raise ValueError(
                f"timeout {self.timeout} and at_once {self.at_once} must be positive, "
                f"retries {self.retries} and backoff {self.backoff} at least 0"
            )
        if not self.model:
            raise ValueError("model is empty: name the model that the endpoint serves")


def _secret(name: str) -> str:
    if not name:
        return ""
    key = os.environ.get(name, "")
    if not key:
        raise ValueError(
            f"the environment variable {name} is not set: export the endpoint's key in it, or set "
            "Config.key='' for an endpoint without one"
        )
    return key


class Endpoint:
    """`ask(messages)` gives a future of Said at once; nothing ever raises from a future.

    All calls run in one thread of their own. counts: calls, attempts, retried_FAULT, fault_FAULT,
    replayed, recorded, tokens. `close()` ends open calls with Fault.CLOSED; use it as a context.
    """

    def __init__(self, config: Config, recordings: recorded.Recordings | None = None):
        self.config, self.recordings = config, recordings
        self.counts: collections.Counter[str] = collections.Counter()
        self._replaying = recordings is not None and recordings.mode == "replay"
        self._open = True
        self._secret = "" if self._replaying else _secret(config.key)
        self._client: Any = None if self._replaying else _client(config, self._secret)
        self._loop = asyncio.new_event_loop()
        self._turn = asyncio.Semaphore(config.at_once)
        self._thread = threading.Thread(target=self._loop.run_forever, name="endpoint", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"Endpoint({self.config.model!r} at {self.config.url!r})"

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def ask(
        self, messages: Sequence[Message], *, seed: int | None = None
    ) -> concurrent.futures.Future[Said]:
        """The outcome to come. seed: sent along, and part of what a recording is found by."""
        if not self._open:
            raise ValueError("the endpoint is closed: make a new one")
        body = self._body(messages, seed)
        return asyncio.run_coroutine_threadsafe(self._call(body), self._loop)

    def close(self) -> None:
        """Ends open calls and frees the connections. A second call does nothing."""
        if not self._open:
            return
        self._open = False
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(timeout=10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)
        if not self._thread.is_alive():
            self._loop.close()

    # --- in the endpoint's own thread ---------------------------------------------------------

    def _body(self, messages: Sequence[Message], seed: int | None) -> dict[str, Any]:
        config = self.config
        sampling = {
            "temperature": config.temperature, "top_p": config.top_p,
            "max_tokens": config.tokens, "seed": seed,
        }  # fmt: skip
        given = {name: value for name, value in sampling.items() if value is not None}
        return {"model": config.model, "messages": list(messages), **given, **config.extra}

    async def _call(self, body: dict[str, Any]) -> Said:
        began = time.monotonic()
        self.counts["calls"] += 1
        try:
            said = await self._answered(body)
        except asyncio.CancelledError:
            said = Said(fault=Fault.CLOSED, reason="the endpoint was closed")
        except Exception as error:  # a fault of ours is an outcome too: a future never raises
            reason = self._scrubbed(f"{type(error).__name__}: {error}")
            said = Said(fault=Fault.REQUEST, reason=reason)
        if said.fault is not None:
            self.counts[f"fault_{said.fault}"] += 1
        self.counts["tokens"] += said.tokens
        return dataclasses.replace(said, seconds=time.monotonic() - began)

    async def _answered(self, body: dict[str, Any]) -> Said:
        if self.recordings is not None:
            try:
                answer = self.recordings.find(body)
                if answer is not None:
                    self.counts["replayed"] += 1
                    return read(answer)
            except ValueError as error:
                return Said(fault=Fault.GARBAGE, reason=str(error))
            if self._replaying:
                name = self.recordings.path(body).name
                return Said(fault=Fault.UNRECORDED, reason=f"no recording {name}")
        async with self._turn:
            return await self._tried(body)

    async def _tried(self, body: dict[str, Any]) -> Said:
        """Attempts with pauses between them; the last one's outcome."""
        for attempt in range(self.config.retries + 1):
            said, pause = await self._attempt(body)
            said = dataclasses.replace(said, attempts=attempt + 1)
            if said.fault not in AGAIN or attempt == self.config.retries:
                return said
            if pause is None:
                whole = min(self.config.longest, self.config.backoff * 2**attempt)
                pause = random.uniform(0.5, 1.0) * whole  # jitter: refused together, back apart
            elif pause > self.config.longest:
                reason = (
                    f"{said.reason}; asked to wait {pause:g} s, longest is {self.config.longest:g}"
                )
                return dataclasses.replace(said, reason=reason)
            self.counts[f"retried_{said.fault}"] += 1
            await asyncio.sleep(pause)
        raise AssertionError("unreachable: the last attempt returns")

    async def _attempt(self, body: dict[str, Any]) -> tuple[Said, float | None]:
        """One request: its outcome, and the pause that the endpoint asked for."""
        import openai

        self.counts["attempts"] += 1
        fail = lambda fault, reason: Said(fault=fault, reason=reason)
        try:
            # The client's own time-out is one of silence: a trickle of bytes would never end.
            async with asyncio.timeout(self.config.timeout):
                raw = await self._client.chat.completions.with_raw_response.create(**_split(body))
                text, kind = raw.text, raw.headers.get("content-type", "")
        except (TimeoutError, openai.APITimeoutError):
            return fail(Fault.TIMEOUT, f"no answer in {self.config.timeout:g} s"), None
        except openai.APIConnectionError as error:
            cause = type(error.__cause__ or error).__name__
            return fail(Fault.CONNECTION, f"no connection ({cause})"), None
        except openai.APIStatusError as error:
            return self._refused(error)
        except openai.APIError as error:
            return fail(Fault.GARBAGE, f"no chat completion ({type(error).__name__})"), None
        try:
            answer = json.loads(text)
            said = read(answer)
        except (ValueError, RecursionError) as error:
            what = error if not isinstance(error, json.JSONDecodeError) else f"no JSON, {kind!r}"
            return fail(Fault.GARBAGE, f"no chat completion: {what}"), None
        if self.recordings is not None:
            self.recordings.keep(body, answer)
            self.counts["recorded"] += 1
        return said, None

    def _refused(self, error: Any) -> tuple[Said, float | None]:
        status = error.status_code
        if status in (401, 403):  # such bodies quote keys: nothing of them is repeated
            variable = self.config.key or "Config.key"
            return Said(
                fault=Fault.DENIED, reason=f"status {status}: see the key in {variable}"
            ), None
        fault = Fault.REQUEST
        if status == 429:
            fault = Fault.RATE
        elif status >= 500 or status in (408, 409):
            fault = Fault.SERVER
        pause = None
        with contextlib.suppress(TypeError, ValueError):
            pause = max(0.0, float(error.response.headers.get("retry-after")))
        reason = f"status {status}"
        if fault is Fault.REQUEST:
            reason += f": {self._scrubbed(str(error.message))}"
        return Said(fault=fault, reason=reason), pause

    def _scrubbed(self, text: str) -> str:
        """One short line without the key."""
        if self._secret:
            text = text.replace(self._secret, "[key]")
        return " ".join(text.split())[:200]

    async def _end(self) -> None:
        own = asyncio.current_task()
        calls = [task for task in asyncio.all_tasks() if task is not own]
        for task in calls:
            task.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        if self._client is not None:
            await self._client.close()


def _client(config: Config, secret: str) -> Any:
    try:
        import openai
    except ImportError:
        raise ModuleNotFoundError(
            "remote chairs need the openai package: pip install 'mimesis_jax[remote]'"
        ) from None
    # Retries are ours, so that each is counted by its cause; the client insists on some key.
    return openai.AsyncOpenAI(
        base_url=config.url, api_key=secret or "none", timeout=config.timeout, max_retries=0
    )


def _split(body: dict[str, Any]) -> dict[str, Any]:
    """The body as arguments of the client: what it has no name for goes into extra_body."""
    named = ("model", "messages", "temperature", "top_p", "max_tokens", "seed")
    rest = {name: value for name, value in body.items() if name not in named}
    known = {name: value for name, value in body.items() if name in named}
    return known | ({"extra_body": rest} if rest else {})
