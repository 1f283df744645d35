"""An OpenAI-compatible embeddings endpoint as an encoder; the extra ``endpoint``."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.encoders.prompts import Side
from gnnretrieval.encoders.settings import ENDPOINT, EncoderSettings, EndpointSettings
from gnnretrieval.encoders.similarity import similarity_of
from gnnretrieval.errors import GnnRetrievalError, InputError
from gnnretrieval.platform.extras import extra
from gnnretrieval.storage.provenance import sha256_of_json

KEY_VARIABLE = "GNNRETRIEVAL_KEY_VARIABLE"  # names the variable of the key for an artifact's endpoint
OPENAI = "https://api.openai.com/v1"
_RETRIES = 8  # of the client: waits double from 0.5 s to 8 s, 40 s in all, unless the endpoint says how long
_TIMEOUT = 600.0  # seconds per request: a small server answers one at a time, and giving up early repeats its work
_FEW, _FEW_WAITS, _FEW_TIMEOUT = 16, (0.5, 1.0), 20.0  # for a few questions: somebody waits, so fail soon
_Batch = Sequence[str]
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


class EndpointError(GnnRetrievalError):
    """The endpoint cannot be reached, refuses the request, or does not answer with the vectors."""


class EndpointEncoder:
    """Encoder behind an embeddings API. The key is read from the environment, sent to the endpoint, and never stored.

    Args:
        settings: The model's name and the endpoint.

    Raises:
        InputError: The settings name no endpoint.
        GnnRetrievalError: The extra ``endpoint`` is not installed.
    """

    def __init__(self, settings: EncoderSettings) -> None:
        if settings.api.endpoint is None:
            raise InputError(f"{settings.checkpoint}: give its endpoint, such as {OPENAI}.")
        self.settings, self.api = settings, settings.api
        self.similarity = similarity_of(settings, says_dot=False)
        self.tokens = 0
        self._client = _client(settings)
        self._lock = threading.Lock()
        self._dimension = self.api.dimensions
        self._next = 0.0  # when the next request may start

    def __repr__(self) -> str:
        return f"EndpointEncoder({self._model('passage')!r} at {self.api.endpoint})"

    @property
    def source(self) -> str:
        """The endpoint's address."""
        return str(self.api.endpoint)

    @property
    def dimension(self) -> int:
        """Width ``d`` of a vector; sends a request if it is not known yet."""
        if self._dimension is None:
            self.encode(["a"], "query")
        assert self._dimension is not None
        return self._dimension

    @property
    def fingerprint(self) -> dict[str, str]:
        """Hash by side of the model, its prompt and options; without the address, because a server may move."""
        return endpoint_fingerprint(self.settings)

    def encode(self, texts: Sequence[str], side: Side) -> NDArray[np.float32]:
        """Vectors ``(len(texts), d)`` float32, of length 1 if the similarity is cosine.

        A request that fails temporarily (rate limits, timeouts, 5xx) is sent again, after the time that the endpoint
        says or a doubling wait. A request of a few questions is sent again at most twice, after 0.5 s and 1 s, and not
        after a timeout or if the endpoint asks for a longer wait.

        Raises:
            EndpointError: The endpoint cannot be reached, refuses the request, or does not answer with the vectors.
        """
        if not texts:
            return np.empty((0, self.dimension), dtype=np.float32)
        prompt = self.settings.query_prompt if side == "query" else self.settings.passage_prompt
        batches = [
            [(prompt or "") + text for text in texts[start : start + self.api.batch_texts]]
            for start in range(0, len(texts), self.api.batch_texts)
        ]
        client, waits = self._client, tuple[float, ...]()  # this client waits by itself
        if side == "query" and len(texts) <= _FEW:
            client, waits = client.with_options(max_retries=0, timeout=_FEW_TIMEOUT), _FEW_WAITS
        parts = _in_threads(lambda batch: self._ask(client, waits, batch, side), batches, self.api.concurrency)
        if len({part.shape[1] for part in parts}) > 1:
            raise EndpointError(f"{self.source}: it gave vectors of several widths for one model.")
        vectors = np.concatenate(parts)
        if self._dimension not in (None, vectors.shape[1]):
            raise EndpointError(
                f"{self.source}: it gave vectors of {self._dimension} numbers before, and of {vectors.shape[1]} now. "
                "Its model has changed."
            )
        self._dimension = int(vectors.shape[1])
        return self.similarity.prepare_array(vectors)

    def _model(self, side: Side) -> str:
        settings = self.settings
        name = settings.query_checkpoint if side == "query" and settings.query_checkpoint else settings.checkpoint
        return name.removeprefix(ENDPOINT)

    def _ask(self, client: Any, waits: Sequence[float], texts: Sequence[str], side: Side) -> NDArray[np.float32]:
        import openai

        request: dict[str, Any] = {"model": self._model(side), "input": list(texts), "encoding_format": "float"}
        if self.api.dimensions is not None:
            request["dimensions"] = self.api.dimensions
        if self.api.input_types is not None:
            request["extra_body"] = {"input_type": self.api.input_types[0 if side == "query" else 1]}
        self._wait_for_turn()
        try:
            answer = _answer(client, request, waits)
        except openai.AuthenticationError:
            raise EndpointError(
                f"{self.source} refuses the key in {self.api.key_variable} "
                f"({'which is set' if os.environ.get(self.api.key_variable) else 'which is not set'}). "
                f"Put the key there, or name its variable by {KEY_VARIABLE}."
            ) from None
        except openai.APIStatusError as error:
            raise EndpointError(
                f"{self.source} refuses {request['model']!r}: {error.status_code} {_reason(error)}."
            ) from None
        except openai.APIConnectionError as error:
            reason = str(error.__cause__ or error).strip().rstrip(".") or type(error).__name__
            raise EndpointError(f"{self.source} cannot be reached ({reason}). Is it running?") from None
        except (openai.OpenAIError, ValueError, TypeError) as error:  # the answer is no JSON of this API
            raise EndpointError(f"{self.source} is no embeddings API: {str(error).splitlines()[0]}.") from None
        return self._vectors_in(answer, len(texts))

    def _vectors_in(self, answer: Any, count: int) -> NDArray[np.float32]:
        """Vectors ``(count, d)`` of an answer, in the order of the texts."""
        try:
            items = sorted(answer.data, key=lambda item: item.index)
            vectors = np.array([item.embedding for item in items], dtype=np.float32)
            complete = [item.index for item in items] == list(range(count)) and vectors.ndim == 2
        except (AttributeError, TypeError, ValueError):
            complete = False
        if not complete:
            raise EndpointError(f"{self.source} did not give one vector for each of {count} texts.")
        lengths = np.linalg.norm(vectors, axis=1)
        if not np.isfinite(lengths).all() or (self.similarity.normalize and not lengths.all()):
            raise EndpointError(f"{self.source} gave a vector that is not finite, or all zeros.")
        if self.api.dimensions is not None and vectors.shape[1] != self.api.dimensions:
            raise EndpointError(
                f"{self.source} gave {vectors.shape[1]} numbers where {self.api.dimensions} were asked for: "
                "its model has no such dimensions. Leave them out."
            )
        with self._lock:
            self.tokens += int(getattr(getattr(answer, "usage", None), "prompt_tokens", 0) or 0)
        return vectors

    def _wait_for_turn(self) -> None:
        """Wait until the limit of requests per minute, shared by all threads, allows another."""
        if self.api.requests_per_minute is None:
            return
        with self._lock:
            start = max(self._next, time.monotonic())
            self._next = start + 60.0 / self.api.requests_per_minute
        time.sleep(max(0.0, start - time.monotonic()))


def _in_threads(
    call: Callable[[_Batch], NDArray[np.float32]], batches: Sequence[_Batch], threads: int
) -> list[NDArray[np.float32]]:
    """Results of ``call`` for each of ``batches``, in order, with several calls at a time; the first error is raised.

    The threads are daemons, unlike a ThreadPoolExecutor's: Ctrl-C does not wait for running requests.
    """
    results: list[NDArray[np.float32] | None] = [None] * len(batches)
    errors: list[BaseException] = []
    left, lock = iter(enumerate(batches)), threading.Lock()

    def work() -> None:
        while not errors:
            with lock:
                number, batch = next(left, (-1, None))
            if batch is None:
                return
            try:
                results[number] = call(batch)
            except BaseException as error:
                errors.append(error)

    started = [threading.Thread(target=work, daemon=True) for _ in range(min(threads, len(batches)))]
    for thread in started:
        thread.start()
    for thread in started:
        while not errors and thread.is_alive():
            thread.join(0.1)
    if errors:
        raise errors[0]
    return [result for result in results if result is not None]


def endpoint_fingerprint(settings: EncoderSettings) -> dict[str, str]:
    """As :attr:`EndpointEncoder.fingerprint`, from the settings alone."""
    options = settings.api.model_dump(mode="json", include={"dimensions", "input_types"})
    common = {**options, "similarity": similarity_of(settings, says_dot=False).model_dump()}
    sides = {
        "query": (settings.query_checkpoint or settings.checkpoint, settings.query_prompt),
        "passage": (settings.checkpoint, settings.passage_prompt),
    }
    return {side: sha256_of_json({"model": name, "prompt": prompt, **common}) for side, (name, prompt) in sides.items()}


def cost_in_words(tokens: int, price: float | None) -> str:
    """The number of tokens, and their cost at ``price`` per million tokens, in words."""
    return f"{tokens:,} tokens" + ("" if price is None else f", which cost {tokens * price / 1e6:,.4f}")


def allowed(settings: EncoderSettings, endpoint: str | None) -> EncoderSettings:
    """The settings of an artifact, with an endpoint and a key variable that the user allows.

    An artifact may come from anyone, and its endpoint receives the questions and the key. So its address is used only
    if it is ``OPENAI_BASE_URL`` of the environment, OpenAI's, or this machine's; ``endpoint`` replaces it. The
    artifact's key variable is never used, because it could name any secret of the environment: the key is read from
    ``OPENAI_API_KEY``, or from the variable that ``GNNRETRIEVAL_KEY_VARIABLE`` names.

    Raises:
        GnnRetrievalError: The artifact names another address, and ``endpoint`` is None.
    """
    variable = os.environ.get(KEY_VARIABLE) or EndpointSettings().key_variable
    settings = settings.model_copy(update={"api": settings.api.model_copy(update={"key_variable": variable})})
    if endpoint is not None:
        api = settings.api.parse(settings.api.model_dump() | {"endpoint": endpoint})
        return settings.model_copy(update={"api": api})
    address = str(settings.api.endpoint)
    trusted = {OPENAI, os.environ.get("OPENAI_BASE_URL", "").rstrip("/")}
    if address in trusted or urlsplit(address).hostname in _LOOPBACK:
        return settings
    raise GnnRetrievalError(
        f"questions are encoded by {settings.checkpoint.removeprefix(ENDPOINT)} at {address}, and would be sent there "
        f"with the key in {settings.api.key_variable}. Allow it with --endpoint {address} (endpoint=… in Python)."
    )


def _answer(client: Any, request: dict[str, Any], waits: Sequence[float]) -> Any:
    """The endpoint's answer; after a temporary failure the request is sent again, once after each of ``waits`` seconds.

    It is not if the request timed out, or if the endpoint asks for a longer wait.
    """
    import openai

    for wait in waits:
        try:
            return client.embeddings.create(**request)
        except (openai.APIConnectionError, openai.RateLimitError, openai.InternalServerError) as error:
            if isinstance(error, openai.APITimeoutError) or _asked_to_wait(error) > wait:
                raise
        time.sleep(wait)
    return client.embeddings.create(**request)


def _asked_to_wait(error: Any) -> float:
    """Seconds for which an answer's header Retry-After asks."""
    asked = error.response.headers.get("retry-after", "0") if hasattr(error, "response") else "0"
    try:
        return float(asked)
    except ValueError:  # a date
        return float("inf")


def _client(settings: EncoderSettings) -> Any:
    openai = extra("openai", "endpoint", "An endpoint")
    api = settings.api
    key = os.environ.get(api.key_variable) or "none"  # many self-hosted servers need no key
    timeout = openai.Timeout(_TIMEOUT, connect=10.0)
    return openai.OpenAI(api_key=key, base_url=api.endpoint, max_retries=_RETRIES, timeout=timeout)


def _reason(error: Any) -> str:
    """The endpoint's error message, shortened."""
    body = getattr(error, "body", None)
    message = body.get("message") if isinstance(body, dict) else None
    return " ".join(str(message or error.message).split())[:200].rstrip(".")
