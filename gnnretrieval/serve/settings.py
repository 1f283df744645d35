"""Settings of a server (batches, deadlines, access), and the limits of a request."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from gnnretrieval.settings import Settings

MAX_QUESTION = 10_000  # characters; an encoder reads a few hundred tokens and ignores the rest
MAX_K = 1000
MAX_NEIGHBORS = 50
MAX_CHANGES = 20  # training questions that a what-if leaves out, and adds
MAX_ID = 1000  # characters
MAX_SESSION = 100  # characters
MAX_MAP_POINTS = 1_000_000  # passages, and questions, that a map draws; 24 bytes each
MOST = 100_000  # passages, and questions, that a map's file draws by default
MOST_TEXTS = 10_000  # of these, passages and questions with their texts in the file
MAX_BODY = 256 * 1024  # bytes
LIMITS = {"question": MAX_QUESTION, "k": MAX_K, "neighbors": MAX_NEIGHBORS, "id": MAX_ID, "body_bytes": MAX_BODY}
STATIC = Path(__file__).with_name("static")


class ServeSettings(Settings):
    """Settings of a server.

    Attributes:
        batch_size: Maximum number of questions that are encoded and searched together.
        batch_wait: Seconds that a question waits for others to join its batch.
        max_waiting: Maximum number of waiting requests; more are refused with 503.
        timeout: Seconds after which a request is given up with 504.
        listens: Whether the server is reached from this machine only or from the network, which decides the names it
            answers to (:class:`gnnretrieval.serve.access.Names`); None: it answers to any name.
        allowed_hosts: Further names that it answers to.
        token: The bearer token that a request must give; None: it needs none.
        rate: Maximum requests a second of one client; None: no limit.
        head_timeout: Seconds in which a request's head must arrive.
        request_timeout: Seconds in which a whole request must arrive.
        answer_timeout: Seconds in which a client must read its answer.
        idle_timeout: Seconds that a connection is kept open for a further request.
        max_connections: Maximum number of open connections.
        stop_timeout: Seconds that requests in flight have when the server stops.
        watch: Seconds between two checks for a new version of the index; None: no checks.
        in_memory: Total bytes of index and graph up to which their files are read into memory; larger ones are
            memory-mapped.
        feedback: File of JSON lines to which thumbs of the explorer are added, as an event log; wants a token. None:
            thumbs are neither offered nor taken.
        explore: Share of the searches in which neighbouring passages are swapped at random
            (:func:`gnnretrieval.feedback.exploration.fair_pairs`).
    """

    batch_size: int = Field(16, ge=1)  # below 20, FAISS gives each question the same scores as alone
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
    feedback: Path | None = None
    explore: float = Field(0.0, ge=0, le=1)

    @model_validator(mode="after")
    def _feedback_of_known_people(self) -> Self:
        if self.feedback is not None and self.token is None:
            raise ValueError("feedback wants a token: give one")
        return self
