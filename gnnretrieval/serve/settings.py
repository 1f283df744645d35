"""How a server batches, waits and whom it answers; and the limits of a request."""

from __future__ import annotations

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
        hosts: Names that a request may call the server by; empty: any.
    """

    batch_size: int = Field(16, ge=1)  # below 20 FAISS scores each question as it does alone
    batch_wait: float = Field(0.001, ge=0)
    max_waiting: int = Field(1024, ge=1)
    timeout: float = Field(30.0, gt=0)
    hosts: tuple[str, ...] = ()
