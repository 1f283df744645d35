import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.mining import mine_negatives, open_examples
from gnnretrieval.mining.examples import Candidate, Example, as_written, read_examples, write_examples
from gnnretrieval.mining.negatives import NegativeSettings

GOOD = {"query": "q", "positives": [{"passage": "a", "source": "label"}], "negatives": []}
numbers = st.floats(allow_nan=False, allow_infinity=False)
ids = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1).filter(str.strip)


@st.composite
def examples(draw):
    named = draw(st.lists(ids, min_size=1, max_size=6, unique=True))
    candidates = [
        Candidate(
            id_,
            draw(st.sampled_from(["label", "bm25", "dual-encoder", "cross-encoder"])),
            draw(st.none() | st.integers(1, 1000)),
            draw(st.none() | numbers),
            draw(st.none() | st.floats(0, 1)),
        )
        for id_ in named
    ]
    cut = draw(st.integers(1, len(named)))
    return Example(draw(ids), tuple(candidates[:cut]), tuple(candidates[cut:]))


@given(st.lists(examples(), max_size=4))
def test_what_is_written_is_read_again(tmp_path_factory, written):
    path = tmp_path_factory.mktemp("examples") / "examples.jsonl"
    assert write_examples(path, written) == len(written)
    assert list(read_examples(path)) == written


def test_what_is_none_is_left_out_of_the_file(tmp_path):
    example = Example("q", (Candidate("a", "label"),), (Candidate("b", "bm25", 2, 1.5),))
    write_examples(tmp_path / "examples.jsonl", [example])
    assert json.loads((tmp_path / "examples.jsonl").read_text()) == {
        "query": "q",
        "positives": [{"passage": "a", "source": "label"}],
        "negatives": [{"passage": "b", "source": "bm25", "rank": 2, "score": 1.5}],
    }


A, B = {"passage": "a", "source": "label"}, {"passage": "b", "source": "bm25"}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{'query'}", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "wanted an object with 'query', 'positives', 'negatives'"),
        (json.dumps({**GOOD, "negative": []}), "unknown key 'negative' of this example. Did you mean 'negatives'?"),
        (json.dumps({"query": "q", "positives": [A]}), "this example has no 'negatives'"),
        (json.dumps({**GOOD, "query": 7}), "found query 7, wanted a string"),
        (json.dumps({**GOOD, "query": " "}), "wanted a string that is not empty"),
        (json.dumps({**GOOD, "negatives": {"b": 1}}), "wanted a list of passages"),
        (json.dumps({**GOOD, "negatives": ["b"]}), "found 'b', wanted an object with 'passage', 'source'"),
        (json.dumps({**GOOD, "negatives": [{"passage": "b"}]}), "this passage has no 'source'"),
        (json.dumps({**GOOD, "negatives": [{**B, "prob": 1}]}), "unknown key 'prob' of this passage"),
        (json.dumps({**GOOD, "negatives": [{**B, "rank": 0}]}), "found rank 0, wanted an integer from 1"),
        (json.dumps({**GOOD, "negatives": [{**B, "rank": True}]}), "found rank True"),
        (json.dumps({**GOOD, "negatives": [{**B, "score": float("nan")}]}), "found score nan, wanted a number"),
        (json.dumps({**GOOD, "negatives": [{**B, "score": "1"}]}), "found score '1'"),
        (json.dumps({**GOOD, "negatives": [{**B, "probability": 1.01}]}), "wanted a number from 0 to 1"),
        (json.dumps({**GOOD, "negatives": [{**B, "probability": 10**400}]}), "wanted a number from 0 to 1"),
        (json.dumps({**GOOD, "positives": []}), "query 'q' has no positive"),
        (json.dumps({**GOOD, "negatives": [A]}), "passage 'a' both as a positive and as a negative"),
        (json.dumps({**GOOD, "negatives": [B, B]}), "passage 'b' twice among its negatives"),
    ],
)
def test_a_line_that_is_wrong_is_refused_with_its_number(tmp_path, line, says):
    path = tmp_path / "examples.jsonl"
    path.write_text(json.dumps(GOOD) + "\n\n" + line + "\n")
    reader = read_examples(path)
    assert next(reader).query == "q"
    with pytest.raises(InputError) as error:
        next(reader)
    assert str(error.value).startswith(f"{path}:3: ")
    assert says in str(error.value)


def test_no_file_is_an_error_in_a_sentence(tmp_path):
    with pytest.raises(InputError, match="no such file; wanted one training example per line"):
        list(read_examples(tmp_path / "nothing.jsonl"))


def test_a_float32_is_written_by_its_shortest_number():
    assert as_written(np.float32(0.9)) == 0.9
    for value in np.random.default_rng(0).random(100, dtype=np.float32):
        assert np.float32(as_written(value)) == value


def test_an_artifact_of_another_kind_or_with_a_damaged_report_is_refused(tiny_features, dataset, tmp_path):
    with pytest.raises(ArtifactError, match="holds features, not examples"):
        open_examples(tiny_features.path)
    made = mine_negatives(dataset, NegativeSettings(), tmp_path / "negatives")
    assert list(open_examples(made.path).examples()) == list(made.examples())
    for text in ("{", "[]"):
        (made.path / "report.json").write_text(text)
        with pytest.raises(ArtifactError, match="this report is damaged"):
            _ = made.report
