"""Sets of ir_datasets, of files that are registered here through its own interface: nothing is downloaded."""

import json
import os
import sys
from datetime import date
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from gnnretrieval.cli import cli
from gnnretrieval.data import Dataset
from gnnretrieval.data.importing import import_dataset
from gnnretrieval.data.sources import source_of
from gnnretrieval.errors import GnnRetrievalError, InputError


class Place(NamedTuple):
    city: str
    raw: bytes


class Page(NamedTuple):
    doc_id: str
    title: str
    text: str
    url: str
    written: date
    place: Place
    authors: tuple[str, ...]

    def default_text(self) -> str:
        return f"{self.title} {self.text}"


class Topic(NamedTuple):
    query_id: str
    title: str
    description: str
    narrative: str

    def default_text(self) -> str:
        return self.title


@pytest.fixture(scope="module")
def ir_datasets(tmp_path_factory):
    """The package, with sets of local files: ``local`` and its ``train`` and ``dev/small``, and ``local-trec/test``."""
    place = tmp_path_factory.mktemp("ir_datasets")
    os.environ["IR_DATASETS_HOME"] = str(place / "home")
    package = pytest.importorskip("ir_datasets")
    from ir_datasets.datasets.base import Dataset as Set
    from ir_datasets.formats import BaseDocs, TrecQrels, TrecQueries, TsvDocs, TsvQueries
    from ir_datasets.util import LocalDownload

    def file(name: str, text: str) -> LocalDownload:
        (place / name).write_text(text, encoding="utf-8")
        return LocalDownload(place / name)

    class Pages(BaseDocs):
        def docs_iter(self):
            yield Page("p1", "A title ", "a text", "https://x.org", date(2020, 1, 2), Place("Ulm", b"\xff"), ("A", "B"))

        def docs_cls(self):
            return Page

    documents = TsvDocs(file("docs.tsv", 'd1\tthe "first" text\nd2\tzwei 東京\n'))
    package.registry.register("local", Set(documents))
    for name in ("train", "dev/small"):
        key = name.partition("/")[0]
        asked = TsvQueries(file(f"{key}.tsv", f"{key}1\twhat is {key}?\n"))
        judged = TrecQrels(file(f"{key}.qrels", f"{key}1 0 d2 1\n{key}1 0 d1 0\n"), {})
        package.registry.register(f"local/{name}", Set(documents, asked, judged))
    topics = TrecQueries(file("topics", "<top>\n<num> Number: 7\n<title> wheat\n<desc> d\n<narr> n\n</top>\n"))
    package.registry.register("local-trec/test", Set(Pages(), topics, TrecQrels(file("t.qrels", "7 0 p1 2\n"), {})))
    return package


def sources(*texts: str) -> list:
    return [one for text in texts for one in source_of(text)]


def test_ids_that_share_documents_read_them_once(ir_datasets, tmp_path, said):
    found = sources("ir-datasets=local/train", "ir-datasets=local/dev/small")
    assert [(str(one.path), one.format, one.split) for one in found] == [
        ("local", "ir-datasets-docs", ""),
        ("local/train", "ir-datasets", "train"),
        ("local", "ir-datasets-docs", ""),
        ("local/dev/small", "ir-datasets", "dev"),
    ]
    made = import_dataset(found, tmp_path / "out")
    dataset = Dataset.open(made.path)
    assert [(one.id, one.text) for one in dataset.passages()] == [("d1", 'the "first" text'), ("d2", "zwei 東京")]
    assert dataset.split("train") == {"train1": {"d2": 1, "d1": 0}}
    assert dataset.split("dev") == {"dev1": {"d2": 1, "d1": 0}}
    assert sorted(made.meta["inputs"]) == [
        "ir-datasets-docs@=local",
        "ir-datasets@dev=local/dev/small",
        "ir-datasets@train=local/train",
    ]
    import_dataset(found, tmp_path / "out")
    assert "already made" in said[-1]


def test_titles_topics_and_other_fields_are_kept(ir_datasets, tmp_path):
    made = import_dataset(sources("ir-datasets=local-trec/test"), tmp_path / "out")
    assert json.loads((made.path / "corpus.jsonl").read_text()) == {
        "_id": "p1",
        "title": "A title",
        "text": "a text",
        "metadata": {"url": "https://x.org", "written": "2020-01-02", "place": {"city": "Ulm"}, "authors": ["A", "B"]},
    }
    assert json.loads((made.path / "queries.jsonl").read_text()) == {
        "_id": "7",
        "text": "wheat",
        "metadata": {"description": "d", "narrative": "n"},
    }
    assert Dataset.open(made.path).split("test") == {"7": {"p1": 2}}


def test_an_id_can_be_joined_by_a_file(ir_datasets, tmp_path):
    judged = tmp_path / "mine.txt"
    judged.write_text("train1 0 d1 3\n")
    made = import_dataset(sources("ir-datasets=local/train", f"trec-qrels@test={judged}"), tmp_path / "out")
    assert Dataset.open(made.path).split("test") == {"train1": {"d1": 3}}


def test_what_is_wrong_with_an_id_is_said(ir_datasets, tmp_path, monkeypatch):
    with pytest.raises(
        InputError, match=r"beir/scifac/test: ir_datasets .* no dataset with this id. Did you mean 'beir/scif"
    ):
        sources("ir-datasets=beir/scifac/test")
    with pytest.raises(InputError, match=r"does not name a split: write ir-datasets@SPLIT=cranfield"):
        sources("ir-datasets=cranfield")
    with pytest.raises(InputError, match=r"split '\.\./x'"):
        sources("ir-datasets@../x=local/train")
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    with pytest.raises(GnnRetrievalError, match=r"^local/train: .*pip install 'gnnretrieval\[ir-datasets\]'"):
        sources("ir-datasets=local/train")


def test_a_download_that_fails_is_one_sentence(ir_datasets, tmp_path):
    from ir_datasets.datasets.base import Dataset as Set
    from ir_datasets.formats import TsvDocs, TsvQueries
    from ir_datasets.util import LocalDownload

    gone = LocalDownload(Path("/nowhere/at/all.tsv"))
    ir_datasets.registry.register("gone", Set(TsvDocs(gone), TsvQueries(gone)))
    with pytest.raises(
        InputError, match=r"^gone: ir_datasets cannot give document 1 \(FileNotFoundError: .* run the same"
    ):
        import_dataset(sources("ir-datasets=gone"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_formats_are_listed_with_it():
    assert "ir-datasets " in CliRunner().invoke(cli, ["data", "import", "--formats"]).output
