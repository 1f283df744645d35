"""A dataset made by hand, and a cross-encoder that says what a test tells it."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from gnnretrieval.data import Dataset
from gnnretrieval.encoders import cross_encoder
from gnnretrieval.encoders.cross_encoder import PairFeatures

PASSAGES = {
    "a": "red apple tree",
    "b": "Red  apple tree.",  # a's text
    "c": "red brick wall",
    "d": "red apple pie recipe",
    "e": "blue whale",
    "f": "green apple",
}
QUERIES = {
    "q1": ("red apple", ["Pie"]),
    "q2": ("blue whale", None),
    "q3": ("green apple", None),
    "u1": ("apple pie", None),
    "u2": ("brick wall", None),
    "u3": ("Blue whale?", None),  # q2's text
}


def write_dataset(directory: Path, qrels: Mapping[str, str]) -> Path:
    directory.mkdir()
    passages = [json.dumps({"_id": id_, "text": text}) + "\n" for id_, text in PASSAGES.items()]
    (directory / "corpus.jsonl").write_text("".join(passages))
    queries = [
        {"_id": id_, "text": text} | ({"metadata": {"answers": answers}} if answers else {})
        for id_, (text, answers) in QUERIES.items()
    ]
    (directory / "queries.jsonl").write_text("".join(json.dumps(query) + "\n" for query in queries))
    (directory / "qrels").mkdir()
    for split, lines in qrels.items():
        (directory / "qrels" / f"{split}.tsv").write_text(lines)
    return directory


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """q1 to a, q2 to e; q3 is only judged 0; u1 to u3 are not judged."""
    return Dataset.open(
        write_dataset(tmp_path / "data", {"train": "q1\ta\t1\nq1\tc\t0\nq3\tf\t0\n", "dev": "q2\te\t1\n"})
    )


class Told:
    """Stands for ``CrossEncoder``: probabilities by (query text, passage text); 0.05 where nothing is told.

    ``asked`` has the pairs of each call; a call at number ``fail_at`` is interrupted.
    """

    def __init__(self, probabilities: Mapping[tuple[str, str], float]) -> None:
        self.probabilities = probabilities
        self.asked: list[list[tuple[str, str]]] = []
        self.fail_at: int | None = None

    def __call__(self, settings, device) -> "Told":
        return self

    def encode_pairs(self, first, second, pairs) -> PairFeatures:
        if len(self.asked) == self.fail_at:
            self.fail_at = None
            raise KeyboardInterrupt
        texts = [(first[query], second[passage]) for query, passage in pairs.tolist()]
        self.asked.append(texts)
        found = np.array([self.probabilities.get(pair, 0.05) for pair in texts], dtype=np.float32)
        return PairFeatures(np.zeros((len(texts), 1), dtype=np.float32), found)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[[Mapping[tuple[str, str], float]], Told]:
    """``told({(query, passage): probability})`` puts such a cross-encoder in place."""

    def put(probabilities: Mapping[tuple[str, str], float]) -> Told:
        judge = Told(probabilities)
        monkeypatch.setattr(cross_encoder, "CrossEncoder", judge)
        return judge

    return put
