"""How a server batches, waits and whom it answers; and the limits of a request."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gnnretrieval.settings import Settings

MAX_QUESTION = 10_000  # characters: an encoder reads some hundred tokens, and the rest is not looked at
MAX_K = 1000
MAX_NEIGHBORS = 50
MAX_ID = 1000  # characters
MAX_BODY = 256 * 1024  # bytes


class ServeSettings(Settings):
    """How a server works.

    Attributes:
        batch_size: Most questions that are encoded and searched together.
        batch_wait: Seconds that a question waits for others.
        max_waiting: Requests that may wait; more are refused with 503.
        timeout: Seconds after which a request is given up with 504.
        listens: Where it is reached, which decides the names it answers to
            (:class:`gnnretrieval.serve.access.Names`); None: it answers to any name.
        allowed_hosts: Names that it answers to as well.
        token: What a request must give as its bearer token; None: nothing.
        rate: Requests a second of one client; None: any number.
        head_timeout: Seconds in which a request's head must arrive.
        request_timeout: Seconds in which its body must.
        answer_timeout: Seconds in which a client must take its answer.
        idle_timeout: Seconds that a connection is kept for a further request.
        max_connections: Connections that may be open.
        stop_timeout: Seconds that requests in flight have when the server stops.
        watch: Seconds between two looks for a new version of the index; None: it is not looked for.
        in_memory: Bytes of index and graph up to which their files are read into memory; larger ones are mapped.
    """

    batch_size: int = Field(16, ge=1)  # below 20 FAISS scores each question as it does alone
    batch_wait: float = Field(0.001, ge=0)
    max_waiting: int = Field(1024, ge=1)
    timeout: float = Field(30.0, gt=0)
    listens: Literal["loopback", "network"] | None = None
    allowed_hosts: tuple[str, ...] = ()
    token: str | None = Field(None, repr=False)
    rate: float | None = Field(None, gt=0)
    head_timeout: float = Field(10.0, gt=0)
    request_timeout: float = Field(30.0, gt=0)
    answer_timeout: float = Field(30.0, gt=0)
    idle_timeout: int = Field(5, ge=1)
    max_connections: int = Field(1000, ge=1)
    stop_timeout: int = Field(2, ge=1)
    watch: float | None = Field(None, gt=0)
    in_memory: int = Field(512 * 1024**2, ge=0)
