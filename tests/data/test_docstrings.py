import json
import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from gnnretrieval.cli import cli
from gnnretrieval.data import Dataset, make_docstring_corpus
from gnnretrieval.data.beir import read_queries
from gnnretrieval.data.docstring_corpus import corpus as module
from gnnretrieval.data.docstring_corpus.corpus import parse_docstring, plain
from gnnretrieval.data.docstring_corpus.public_objects import PublicObject
from gnnretrieval.data.inspection.same_text import normalised
from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.recipes.dry_run import dry_run
from gnnretrieval.storage.artifacts import open_artifact

GRAPHS = Path(__file__).resolve().parents[2] / "graphs"

SOLVE = """solve(a, b)

Solve a linear
system.

The system is :func:`~toy.square`, see ``dot``.

Parameters
----------
a : array
    The matrix.

Returns
-------
None
x : array
    The solution.

See Also
--------
:func:`toy.other.lstsq` : Solve it by
    least squares.
inv, missing : Invert a matrix
other.pinv

Notes
-----
.. versionadded:: 1.2
Uses LU.

Examples
--------
>>> 1 / 0
"""


def test_a_docstring_is_parted_into_summary_text_and_see_also():
    doc = parse_docstring(SOLVE)
    assert doc.summary == "Solve a linear system."
    assert doc.text == "The system is toy.square, see dot.\nUses LU.\na : array The matrix.\nx : array The solution."
    assert doc.see_also == (
        ("toy.other.lstsq", "Solve it by least squares."),
        ("inv", "Invert a matrix"),
        ("missing", "Invert a matrix"),
    )


@pytest.mark.parametrize(
    "docstring",
    ["", "x", "Notes\n---\n---", "Parameters\n----------\nReturns\n-----\n" * 2, "S.\n\nSee Also\n--------\n:::"],
)
def test_a_malformed_docstring_is_parsed_or_none_and_never_warns(docstring, recwarn):
    doc = parse_docstring(docstring)
    assert doc is None or isinstance(doc.text, str)
    assert not recwarn.list


def test_a_directive_is_no_summary():
    assert parse_docstring(".. deprecated:: 1.0\n   Gone.\n\nMore.").summary == ""


@pytest.mark.parametrize(
    ("marked", "text"),
    [
        (":func:`~numpy.dot` and ``a``", "numpy.dot and a"),
        (":py:class:`the array <numpy.ndarray>`", "the array"),
        ("`x`\n   wide", "x wide"),
        ("1 - 2: :math:`a_i`", "1 - 2: a_i"),
    ],
)
def test_plain_takes_markup_off(marked, text):
    assert plain(marked) == text


def test_texts_are_the_same_whatever_case_space_and_full_stop():
    assert normalised("Solve  IT.\n") == normalised("solve it") == "solve it"
    assert normalised("...") == ""


def entry(name: str, docstring: str, *aliases: str) -> PublicObject:
    return PublicObject(name, (name, *aliases), docstring)


@pytest.fixture
def make_toy(monkeypatch, tmp_path):
    """Makes a variant of a small corpus."""
    objects = [
        entry("toy.inv", "Inverse.\n\nOf a matrix.\n\nSee Also\n--------\ninv : Itself\nother.lstsq : INVERSE"),
        entry("toy.other.lstsq", "Least squares.\n\nFits.\n\nSee Also\n--------\nsolve : Exact answer\ninv : another"),
        entry("toy.pinv", "least  squares\n\nPseudo."),
        entry("toy.solve", SOLVE, "toy.other.solve"),
        entry("toy.empty", "Says nothing."),
        entry("toy.old", ".. deprecated:: 1.0\n   Gone.\n\nMore."),
    ]
    monkeypatch.setattr(module, "public_objects", lambda packages: objects)

    def make(summaries: str) -> Dataset:
        return Dataset.open(make_docstring_corpus(tmp_path / summaries, summaries).path)

    return make


@pytest.fixture
def toy(make_toy) -> Dataset:
    return make_toy("question")


def judged_texts(dataset: Dataset) -> dict[str, set[str]]:
    """Relevant passages by query text, of every split."""
    text_of = {query.id: query.text for query in dataset.queries()}
    return {text_of[query]: set(found) for split in dataset.splits for query, found in dataset.split(split).items()}


def test_queries_are_summaries_and_descriptions_by_others_merged_by_text(toy):
    assert judged_texts(toy) == {
        "Inverse.": {"toy.inv", "toy.other.lstsq"},
        "Least squares.": {"toy.other.lstsq", "toy.pinv"},
        "Solve a linear system.": {"toy.solve"},
        "Exact answer": {"toy.solve"},
        "another": {"toy.inv"},
        "Solve it by least squares.": {"toy.other.lstsq"},
        "Invert a matrix": {"toy.inv"},
    }


def test_summaries_are_train_also_where_a_see_also_says_the_same(toy):
    train = {query.text for query in toy.queries_of("train")}
    assert {"Inverse.", "Least squares.", "Solve a linear system."} <= train


def test_a_query_says_where_it_was_written(toy):
    metadata = {query.text: data for query, data in read_queries(toy.path / "queries.jsonl")}
    assert metadata["Inverse."] == {"kind": "summary", "written_in": ["toy.inv"]}
    assert metadata["another"] == {"kind": "see-also", "written_in": ["toy.other.lstsq"]}


def test_with_summaries_in_passages_no_summary_is_a_query(make_toy):
    toy = make_toy("passage")
    assert judged_texts(toy) == {
        "Exact answer": {"toy.solve"},
        "another": {"toy.inv"},
        "Solve it by least squares.": {"toy.other.lstsq"},
        "Invert a matrix": {"toy.inv"},
    }
    assert {data["kind"] for _, data in read_queries(toy.path / "queries.jsonl")} == {"see-also"}


def test_with_summaries_in_passages_a_passage_is_its_summary_and_its_text(make_toy):
    passages = {passage.id: passage for passage in make_toy("passage").passages()}
    assert set(passages) == {"toy.inv", "toy.other.lstsq", "toy.pinv", "toy.solve", "toy.old"}
    assert passages["toy.inv"].title == "toy.inv"
    assert passages["toy.inv"].text == "Inverse.\nOf a matrix."
    assert passages["toy.solve"].text.startswith("Solve a linear system.\nThe system is")
    assert "Invert a matrix" not in passages["toy.solve"].text  # that is in its See Also
    assert passages["toy.old"].text == "More."  # it has no summary


def test_a_directory_of_the_other_variant_is_not_reused(make_toy, tmp_path):
    make_toy("passage")
    with pytest.raises(ArtifactError, match="summaries was 'passage' and is now 'question'"):
        make_docstring_corpus(tmp_path / "passage", "question")
    made = make_docstring_corpus(tmp_path / "passage", "question", overwrite=True)
    assert Dataset.open(made.path).hash == make_toy("question").hash


def test_another_word_than_passage_or_question_is_refused(tmp_path):
    with pytest.raises(InputError, match="give passage or question"):
        make_docstring_corpus(tmp_path / "toy", "passages")
    assert not list(tmp_path.iterdir())


def test_a_passage_has_its_name_as_id_and_title_and_not_its_summary(toy):
    passages = {passage.id: passage for passage in toy.passages()}
    assert set(passages) == {"toy.inv", "toy.other.lstsq", "toy.pinv", "toy.solve", "toy.old"}
    assert passages["toy.inv"].title == "toy.inv"
    assert passages["toy.inv"].text == "Of a matrix."


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Path, str]:
    """The corpus of the installed packages, made by the command without a warning, and what it printed."""
    path = tmp_path_factory.mktemp("corpus") / "docstrings"
    code = "from gnnretrieval.cli import main; import warnings; warnings.simplefilter('default'); main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "data", "docstrings", "--out", path],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": "1"},
        check=True,
    )
    assert "Warning" not in done.stderr
    return path, done.stdout


@pytest.fixture(scope="module")
def corpus(made) -> Path:
    return made[0]


@pytest.fixture(scope="module", autouse=True)
def parsed_once():
    """Both variants are made of the same docstrings, which take most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("parse_docstring", "public_objects"):
            patch.setattr(module, name, lru_cache(maxsize=None)(getattr(module, name)))
        yield


def test_the_command_says_what_it_made(made, tmp_path):
    path, said = made
    counts = open_artifact(path, "dataset").meta["counts"]
    assert f"{counts['passages']:,} passages" in said
    assert f"{counts['train_queries']:,} train queries" in said
    figures = json.loads(CliRunner().invoke(cli, ["data", "inspect", str(path), "--json"]).stdout)
    assert list(figures["splits"]) == ["train", "dev", "test"]
    assert figures["passages"] == counts["passages"]
    assert not figures["shared_with_train"]["test"]
    cut = CliRunner().invoke(cli, ["data", "docstrings", "--summaries", "question", "--out", str(tmp_path / "cut")])
    assert f"{counts['passages']:,} passages" in cut.stdout
    assert f"{counts['train_queries']:,} train queries" not in cut.stdout


def test_a_dry_run_counts_the_corpus_though_it_is_not_made(toy, tmp_path):
    found = dry_run(GRAPHS / "docstrings.toml", out=tmp_path / "out")
    assert found.sizes.passages == len(toy.passage_ids) == 5
    assert found.sizes.source == "dataset"
    assert not found.stages[0].made
    assert not (tmp_path / "out").exists()


def test_the_corpus_of_the_installed_packages_has_its_size(corpus):
    dataset = Dataset.open(corpus)
    counts = open_artifact(corpus, "dataset").meta["counts"]
    assert counts["passages"] == len(dataset.passage_ids)
    assert 3500 < counts["passages"] < 5500
    assert counts["queries"] == len(dataset.query_ids)
    assert 400 < counts["test_judgements"] < 900
    assert dataset.splits == ["train", "dev", "test"]
    assert {"numpy.linalg.solve", "scipy.linalg.lstsq", "sklearn.decomposition.PCA", "networkx.pagerank"} <= set(
        dataset.passage_ids
    )
    assert {"numpy.add", "scipy.special.erf", "scipy.stats.norm"} <= set(dataset.passage_ids)


def test_the_same_packages_give_the_same_bytes(corpus, tmp_path):
    again = make_docstring_corpus(tmp_path / "again")
    assert again.hash == open_artifact(corpus, "dataset").hash


def test_both_variants_have_the_same_passages_dev_and_test(corpus, tmp_path):
    default, cut = Dataset.open(corpus), Dataset.open(make_docstring_corpus(tmp_path / "cut", "question").path)
    assert cut.passage_ids == default.passage_ids
    texts, its_texts = ({query.id: query.text for query in made.queries()} for made in (default, cut))
    assert texts.items() <= its_texts.items()
    for split in ("dev", "test"):
        assert cut.split(split) == default.split(split)
    assert cut.split("train").items() > default.split("train").items()
    relevant = {name: {p for judged in cut.split(name).values() for p in judged} for name in ("train", "test")}
    assert len(relevant["train"] & relevant["test"]) > 0.99 * len(relevant["test"])


def test_the_corpus_is_made_once(corpus, said):
    make_docstring_corpus(corpus)
    assert len(said) == 1
    assert "reused" in said[0]
