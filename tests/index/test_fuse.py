import pytest
from click.testing import CliRunner

from gnnretrieval.cli import cli
from gnnretrieval.data.records import ScoredPassage
from gnnretrieval.data.trec import rank, read_run, write_run
from gnnretrieval.errors import InputError
from gnnretrieval.index.fuse import fuse


def run(**queries):
    return {query: rank([ScoredPassage(*pair) for pair in scored.items()]) for query, scored in queries.items()}


ONE = run(q1={"a": 9.0, "b": 5.0, "c": 1.0}, q2={"a": 1.0})
TWO = run(q1={"c": 0.9, "d": 0.5, "a": 0.1}, q3={"z": 2.0, "y": 2.0})


def test_reciprocal_ranks_are_summed():
    fused = fuse([ONE, TWO])
    assert {p.passage_id: p.score for p in fused["q1"]} == {
        "a": pytest.approx(1 / 61 + 1 / 63),
        "b": pytest.approx(1 / 62),
        "c": pytest.approx(1 / 63 + 1 / 61),
        "d": pytest.approx(1 / 62),
    }
    assert [p.passage_id for p in fused["q1"]] == ["c", "a", "d", "b"]  # ties by id, highest first
    assert [p.passage_id for p in fused["q2"]] == ["a"]
    assert [p.passage_id for p in fused["q3"]] == ["z", "y"]


def test_scores_are_brought_to_one_scale_and_weighted():
    fused = fuse([ONE, TWO], "weighted", weights=[1.0, 2.0])
    assert [(p.passage_id, p.score) for p in fused["q1"]] == [
        ("c", 2.0),
        ("d", 1.0),
        ("a", 1.0),
        ("b", 0.5),
    ]
    assert [p.score for p in fused["q3"]] == [2.0, 2.0]  # equal scores are all the largest


def test_a_weight_of_zero_leaves_a_runs_order_alone():
    fused = fuse([ONE, TWO], weights=[0.0, 1.0], k=1, depth=2)
    assert [p.passage_id for p in fused["q1"]] == ["c", "d"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"runs": [ONE]}, "two runs or more"),
        ({"runs": [ONE, TWO], "weights": [1.0]}, "1 weights for 2 runs"),
        ({"runs": [ONE, TWO], "weights": [0.0, 0.0]}, "not all 0"),
        ({"runs": [ONE, TWO], "weights": [-1.0, 1.0]}, "numbers from 0 on"),
        ({"runs": [ONE, TWO], "weights": [float("nan"), 1.0]}, "numbers from 0 on"),
        ({"runs": [ONE, run(q={"a": float("inf")})], "method": "weighted"}, "'q' has a score that is not finite"),
    ],
)
def test_what_cannot_be_fused_is_said(arguments, said):
    with pytest.raises(InputError, match=said):
        fuse(**arguments)


def test_the_command(tmp_path):
    paths = [tmp_path / "bm25.run", tmp_path / "gnn.run"]
    for path, one in zip(paths, (ONE, TWO), strict=True):
        write_run(path, one, path.stem)
    out = tmp_path / "hybrid.run"
    made = CliRunner().invoke(cli, ["fuse", *map(str, paths), "--out", str(out)])
    assert made.exit_code == 0, made.output
    assert read_run(out) == fuse([ONE, TWO])
    wrong = CliRunner().invoke(cli, ["fuse", *map(str, paths), "--out", str(out), "--weights", "much"])
    assert wrong.exit_code == 2
    assert "write numbers" in wrong.output
