"""Asking PostgreSQL with pgvector by the SQL that an export returns."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import psycopg


def answers(dsn: str, sql: str, questions: np.ndarray) -> Iterator[list[Any]]:
    """The rows that are found for each question ``(q, d)``."""
    with psycopg.connect(dsn) as connection:
        for question in questions:
            literal = "[" + ",".join(f"{value:.9g}" for value in question.tolist()) + "]"
            asking = sql.replace("%(question)s", "%(question)s::vector")
            yield connection.execute(asking, {"question": literal}).fetchall()
