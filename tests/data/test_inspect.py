import json
import re
from html import escape
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from pydantic import ValidationError

from gnnretrieval.data import Dataset, Passage, Qrel, Query, inspect_dataset
from gnnretrieval.data.beir import write_passages, write_qrels, write_queries
from gnnretrieval.data.inspection.inspect import inspect_files
from gnnretrieval.data.inspection.near_copies import QueryVectors
from gnnretrieval.data.inspection.report import DatasetReport, Repeated


def dataset(root: Path, passages, queries, **splits) -> Dataset:
    write_passages(root / "corpus.jsonl", ((passage, {}) for passage in passages))
    write_queries(root / "queries.jsonl", ((query, {}) for query in queries))
    for name, qrels in splits.items():
        write_qrels(root / "qrels" / f"{name}.tsv", qrels)
    return Dataset.open(root)


@pytest.fixture
def flawed(tmp_path) -> Dataset:
    return dataset(
        tmp_path,
        [
            Passage("a b", "T", "one two three"),
            Passage("p2", "", "One  two three."),
            Passage("p3", "T", "x " * 300),
            Passage("p4", "Only title", ""),
        ],
        [Query("q1", "who?"), Query("q2", "WHO"), Query("q3", "where is it"), Query("q4", "when"), Query("q5", "why")],
        train=[Qrel("q1", "a b", 1), Qrel("q4", "p2", 0)],
        test=[Qrel("q2", "a b", 1), Qrel("q2", "p3", 2), Qrel("q3", "p4", 1), Qrel("q3", "p2", 0)],
    )


def test_figures_of_a_flawed_dataset(flawed):
    figures = inspect_dataset(flawed)
    of_passages, of_queries = figures.words_per_passage, figures.words_per_query
    assert (of_passages.median, of_passages.p95, of_passages.max) == (3, 300, 300)
    assert (of_queries.median, of_queries.p95, of_queries.max) == (1, 3, 3)
    assert sum(bin_.count for bin_ in of_passages.histogram) == 4
    assert figures.duplicates == Repeated(passages=[["a b", "p2"]], queries=[["q1", "q2"]])
    assert (
        figures.splits["test"].as_json().items()
        >= {
            "queries": 2,
            "judgements": 4,
            "judgements_per_query": 2.0,
            "queries_without_relevant": 0,
            "relevant_passages": 3,
        }.items()
    )
    assert figures.splits["train"].queries_without_relevant == 1
    names = ("passages", "queries", "unjudged_queries", "passages_without_title", "passages_without_text")
    assert [getattr(figures, name) for name in names] == [4, 5, 1, 1, 1]
    assert (figures.duplicate_passages, figures.duplicate_queries, figures.ids_with_whitespace) == (1, 1, 1)
    assert figures.shared_with_train == {"test": 1}
    assert figures.test_passages_in_train_share == pytest.approx(1 / 3)
    assert figures.long_passages_share == 0.25


def test_a_report_cannot_change_and_completes_its_names(flawed):
    report = flawed.inspect(most=0)
    with pytest.raises(ValidationError, match="frozen"):
        report.passages = 3
    with pytest.raises(AttributeError, match="pasages"):
        _ = report.pasages
    assert list(report.as_json())[:5] == ["name", "hash", "passages", "queries", "files"]
    assert list(report.splits["test"].judgements_a_query.histogram[0].as_json()) == ["from", "to", "count"]
    assert report._repr_html_() == f"<pre>{escape(repr(report))}</pre>"


def test_each_flaw_is_a_warning_that_says_what_to_do(flawed):
    warnings = inspect_dataset(flawed).warnings
    starts = [
        "There is no dev split to choose settings on (training holds out a quarter of train instead)",
        "The test split is too small to tell systems apart (2 queries)",
        "Queries of train have no relevant passage (1 of 2)",
        "Queries of test have the text of a train query (1 of 2)",
        "Of the passages relevant in test, 33% are also relevant to a train query",
        "Of the queries of test, 50% share half of their words or more with a train query of the same passage",
        "Passages repeat the text of an earlier one (1 of 4)",
        "Queries repeat the text of an earlier one (1 of 5)",
        "Some passages have no title (1 of 4)",
        "Of the passages, 25% have more than 200 words",
        "Ids contain white space (1)",
        "Lines look wrong (1: no text)",
    ]
    assert [warning[: len(start)] for warning, start in zip(warnings, starts, strict=True)] == starts
    assert all(": " in warning and warning.endswith(".") for warning in warnings)


def test_a_sound_dataset_has_no_warnings(tmp_path):
    passages = [Passage(f"p{n}", "", f"passage {n}") for n in range(300)]
    queries = [Query(f"q{n}", f"query {n}") for n in range(300)]
    judged = [Qrel(f"q{n}", f"p{n}", 1) for n in range(300)]
    sound = dataset(tmp_path, passages, queries, train=judged[:100], dev=judged[100:200], test=judged[200:])
    figures = inspect_dataset(sound)
    assert figures.warnings == []
    assert figures.test_passages_in_train_share == 0.0
    assert figures.to_text().endswith("No warnings.")


def test_without_train_nothing_is_shared_and_the_share_is_unknown(tmp_path):
    figures = inspect_dataset(dataset(tmp_path, [Passage("p", "", "x")], [Query("q", "x")], test=[Qrel("q", "p", 1)]))
    assert figures.test_passages_in_train_share is None
    assert figures.shared_with_train == {"test": 0}
    assert "not known" in figures.to_text()


def test_figures_are_json_and_the_text_shows_counts_and_warnings(flawed):
    figures = inspect_dataset(flawed)
    assert DatasetReport.model_validate_json(json.dumps(figures.as_json())) == figures
    text = figures.to_text()
    assert all(warning in text for warning in figures.warnings)
    assert "1 of test" in text
    assert flawed.hash[:12] in text
    assert "corpus.jsonl:4: passage 'p4' has only a title" in text
    assert "a b = p2" in text


class Words:
    """A tokenizer whose tokens are words."""

    name = "words"
    limits = MappingProxyType({"passage": 100, "query": 2})

    def count(self, texts, side):
        return np.array([len(text.split()) for text in texts])


def keys(value, named_by_the_data=("splits", "files", "grades", "shared_with_train", "at_least", "below")) -> set[str]:
    """Every key of nested figures but those that are names from the dataset."""
    if isinstance(value, list):
        return set().union(*map(keys, value))
    if not isinstance(value, dict):
        return set()
    inner = [keys(list(its.values())) if key in named_by_the_data else keys(its) for key, its in value.items()]
    return set(value).union(*inner)


def test_every_key_is_documented(flawed):
    text = (Path(__file__).parents[2] / "docs" / "datasets.md").read_text(encoding="utf-8")
    vectors = QueryVectors("ones", {id_: row for row, id_ in enumerate(flawed.query_ids)}, np.ones((5, 2)))
    missing = {key for key in keys(inspect_dataset(flawed, Words(), vectors).as_json()) if f"`{key}`" not in text}
    assert missing == set()


def test_with_a_tokenizer_the_share_that_is_cut_takes_the_place_of_a_guess_by_words(flawed):
    figures = inspect_dataset(flawed, Words())
    assert figures.tokens.encoder == "words"
    assert figures.tokens.passages.share_cut == 0.25
    warnings = "\n".join(figures.warnings)
    assert "Of the passages, 25% are truncated at 100 tokens, and 65% of all tokens are never read: raise" in warnings
    assert "Of the queries, 20% are truncated at 2 tokens" in warnings
    assert "more than 200 words" not in warnings
    assert inspect_dataset(flawed).tokens is None
    text = figures.to_text()
    assert "Tokens, as words reads them" in text
    assert "25.0% are truncated at 100, 64.8% of all tokens are lost" in text


def test_near_duplicates_are_figures_with_examples_and_a_warning(tmp_path):
    words = [f"word{number}" for number in range(40)]
    passages = [Passage(f"p{n}", "", " ".join([*words, f"end{n}"])) for n in range(2)]
    passages += [Passage(f"other{n}", "", f"another text, number {n}") for n in range(3)]
    figures = inspect_dataset(dataset(tmp_path, passages, [Query("q", "x")], test=[Qrel("q", "p0", 1)]))
    near = figures.near_duplicates.passages
    assert (near.near, near.pairs, near.share, near.is_whole) == (2, 1, 0.4, True)
    assert [side.id for side in near.examples[0].pair] == ["p0", "p1"]
    assert any(warning.startswith("Of the passages, 40% are near-duplicates") for warning in figures.warnings)
    text = figures.to_text()
    assert "near-duplicate passages  2 of 5 (40.0%), in 1 pair\n" in text
    assert re.search(r"^    0\.9\d  p0  word0 .*…$", text, re.MULTILINE)


def test_a_control_character_of_a_text_or_an_id_never_reaches_the_terminal(tmp_path):
    texts = [f"\x1b[31m{' '.join(map(str, range(30)))} end{n}" for n in range(2)]
    passages = [Passage(f"\x1b{n}", "", text) for n, text in enumerate([*texts, texts[0]])]
    figures = inspect_dataset(dataset(tmp_path, passages, [Query("q", "x")], test=[Qrel("q", "\x1b0", 1)]))
    assert figures.near_duplicates.passages.pairs == figures.duplicate_passages == 1
    text = figures.to_text()
    assert "[31m0 1 2" in text
    assert "\x1b" not in text


def test_of_a_directory_that_cannot_be_opened_the_problems_are_text(tmp_path):
    (tmp_path / "corpus.jsonl").write_text('{"_id": "p", "text": "x"}\n' + "{\n" * 7)
    figures = inspect_files(tmp_path)
    text = figures.to_text()
    assert list(figures.as_json()) == ["name", "files", "problems"]
    assert "  error: not JSON in corpus.jsonl, 7 lines\n    corpus.jsonl:2: not JSON: " in text
    assert "    … and 2 more" in text
    assert "  error: no such file in queries.jsonl\n    queries.jsonl: no such file; wanted" in text
    assert "  error: no judgements in qrels/\n    qrels/: no folder qrels/" in text
