"""What a route needs of its request: the version that answers it, and the server's threads."""

from __future__ import annotations

import time
from typing import Annotated, Any, NamedTuple

from fastapi import Depends, Query, Request
from fastapi import Path as PathParameter

from gnnretrieval.encoders.reader import Reader
from gnnretrieval.feedback.thumb_log import ThumbLog
from gnnretrieval.serve import schemas
from gnnretrieval.serve.measuring import Measurements
from gnnretrieval.serve.served import CurrentVersion, Served
from gnnretrieval.serve.settings import MAX_ID, ServeSettings
from gnnretrieval.serve.worker import Worker


class Feedback(NamedTuple):
    """Where thumbs go.

    Attributes:
        log: The log.
        thread: The thread that writes it, so that nothing else waits for the disk.
    """

    log: ThumbLog
    thread: Worker


class AnswerSource(NamedTuple):
    """Where answers come from.

    Attributes:
        reader: The reader.
        thread: The thread that it reads in, so that no ranking waits for it.
    """

    reader: Reader
    thread: Worker


class Serving(NamedTuple):
    """A running server.

    Attributes:
        settings: Its settings.
        questions: The thread that encodes and searches.
        graph: The thread that reads the graph and its texts.
        versions: The version that is served, and its replacement.
        measurements: What it counts.
        feedback: Where thumbs go; None: none are taken.
        answers: Where answers come from; None: there are none.
    """

    settings: ServeSettings
    questions: Worker
    graph: Worker
    versions: CurrentVersion
    measurements: Measurements
    feedback: Feedback | None
    answers: AnswerSource | None

    def threads(self) -> list[Worker | CurrentVersion]:
        """All that must be closed when the server stops."""
        further = [part.thread for part in (self.answers, self.feedback) if part is not None]
        return [self.questions, self.graph, *further, self.versions]


async def _served(request: Request) -> Served:
    """The version that answers a request; the guard chose it when the request arrived."""
    served: Served = request.scope["served"]
    return served


async def _serving(request: Request) -> Serving:
    serving: Serving = request.app.state.serving
    return serving


Now = Annotated[Served, Depends(_served)]
Here = Annotated[Serving, Depends(_serving)]
PathId = Annotated[str, PathParameter(min_length=1, max_length=MAX_ID)]
NodeId = Annotated[str, Query(min_length=1, max_length=MAX_ID, description="The node's id.")]
NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"model": schemas.ErrorAnswer, "description": "No such thing."}}


def milliseconds_since(begun: float) -> float:
    """Milliseconds since ``begun``, a time of ``time.perf_counter``."""
    return round(1000 * (time.perf_counter() - begun), 2)
