"""A search over the tiny dataset, which is updated from simulated clicks."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from gnnretrieval.data import Dataset
from gnnretrieval.feedback import SimulationSettings, simulate_log
from gnnretrieval.nightly import UpdateReport, Versions, update_search

RECIPE = """
name = "tiny"
[data]
source = "passages.jsonl"
[encoder]
checkpoint = "{checkpoint}"
[feedback]
dev_share = 0.15
test_share = 0.15
[update]
least = 5
evidence = 0.05
usual_gain = 1.0   # few questions are trusted
"""


class Search:
    """A search in a directory, and the log of its users."""

    def __init__(self, place: Path, dataset: Path, checkpoint: Path, log: list[str]) -> None:
        self.place, self.log, self.checkpoint = place, log, checkpoint
        self.data, self.recipe = place / "passages.jsonl", place / "tiny.toml"
        if not self.recipe.exists():
            place.mkdir(exist_ok=True)
            self.data.write_bytes((dataset / "corpus.jsonl").read_bytes())
            self.recipe.write_text(RECIPE.format(checkpoint=checkpoint))
        self.run = Versions(place / "tiny-live")

    def events(self, share: float = 1.0) -> Path:
        """The first share of the log, as a file."""
        file = self.place / "log.jsonl"
        file.write_text("".join(self.log[: round(share * len(self.log))]))
        return file

    def update(self, share: float = 1.0, **how: Any) -> UpdateReport:
        """A night, after which the log has this share."""
        return update_search(self.recipe, [self.events(share)], **how)

    def set_passages(self, **texts: str) -> None:
        """Add passages, give them other texts, or remove them, where the text is empty."""
        its = {one["_id"]: one for one in map(json.loads, self.data.read_text().splitlines())}
        its |= {id_: {"_id": id_, "title": "", "text": text} for id_, text in texts.items()}
        self.data.write_text("".join(json.dumps(one) + "\n" for one in its.values() if one["text"]))

    def copied(self, place: Path) -> "Search":
        """The same at another place."""
        shutil.copytree(self.place, place, symlinks=True)
        return Search(place, place, self.checkpoint, self.log)


@pytest.fixture(scope="session")
def log(tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Lines of a simulated log over the tiny dataset, in the order of their times."""
    file = tmp_path_factory.mktemp("log") / "log.jsonl"
    simulate_log(Dataset.open(tiny_dataset), file, SimulationSettings(impressions=2000, shown=5, seed=1))
    return file.read_text().splitlines(keepends=True)


@pytest.fixture
def new_search(tmp_path: Path, tiny_dataset: Path, tiny_checkpoint: Path, log: list[str]) -> Search:
    """A search that nobody has asked yet."""
    return Search(tmp_path / "search", tiny_dataset, tiny_checkpoint, log)


@pytest.fixture(scope="session")
def first_night(
    tmp_path_factory: pytest.TempPathFactory, tiny_dataset: Path, tiny_checkpoint: Path, log: list[str]
) -> tuple[Search, UpdateReport]:
    """After the first night, whose clicks are too few for a new model."""
    search = Search(tmp_path_factory.mktemp("night") / "first", tiny_dataset, tiny_checkpoint, log)
    return search, search.update(0.5)


@pytest.fixture(scope="session")
def two_nights(
    tmp_path_factory: pytest.TempPathFactory, first_night: tuple[Search, UpdateReport]
) -> tuple[Search, UpdateReport]:
    """After the second night."""
    search = first_night[0].copied(tmp_path_factory.mktemp("night") / "second")
    return search, search.update()


@pytest.fixture
def search(two_nights: tuple[Search, UpdateReport], tmp_path: Path) -> Search:
    """A search after two nights."""
    return two_nights[0].copied(tmp_path / "search")
