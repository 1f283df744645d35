import pytest
from click.testing import CliRunner

from gnnretrieval.cli import cli
from gnnretrieval.data.records import ScoredPassage
from gnnretrieval.data.runs.trec import rank, read_run, write_run
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


@pytest.mark.parametrize("method", ["rrf", "weighted"])
def test_a_weight_of_zero_leaves_the_other_run_as_it_is(method):
    fused = fuse([ONE, TWO], method, weights=[0.0, 1.0])
    assert {query: [p.passage_id for p in fused[query]] for query in fused} == {
        "q1": ["c", "d", "a"],
        "q2": [],
        "q3": ["z", "y"],
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"runs": [ONE]}, "two runs or more"),
        ({"runs": [ONE, TWO], "weights": [1.0]}, "1 weight for 2 runs"),
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
    assert "write one number per run" in wrong.output


def test_the_command_does_not_replace_a_run_that_it_reads(tmp_path):
    paths = [tmp_path / name for name in ("fused.run", "b.run")]
    for path, one in zip(paths, (ONE, TWO), strict=True):
        write_run(path, one, path.stem)
    before = paths[0].read_bytes()
    wrong = CliRunner().invoke(cli, ["fuse", *map(str, paths)])  # fused.run beside the first is the default place
    assert (wrong.exit_code, "would be replaced: name another file with --out" in wrong.output) == (2, True)
    assert paths[0].read_bytes() == before


def test_the_command_chooses_on_dev_questions(tmp_path):
    """Each run has the right passage second, behind another wrong one: together it is first."""
    dev = [run(**{f"d{n}": {wrong: 3.0, "a": 2.5, "z": 1.0} for n in range(20)}) for wrong in ("x", "y")]
    paths = [tmp_path / name for name in ("bm25.run", "gnn.run", "dev-bm25.run", "dev-gnn.run")]
    for path, one in zip(paths, (ONE, TWO, *dev), strict=True):
        write_run(path, one, path.stem)
    qrels, out = tmp_path / "dev.tsv", tmp_path / "hybrid.run"
    qrels.write_text("".join(f"d{n}\ta\t1\n" for n in range(20)), encoding="utf-8")
    runs, dev_runs = map(str, paths[:2]), [word for path in paths[2:] for word in ("--dev-run", str(path))]
    words = ["fuse", *runs, "--out", str(out), "--choose-on", str(qrels)]
    made = CliRunner().invoke(cli, [*words, *dev_runs])
    assert made.exit_code == 0, made.output
    assert (
        "weighted with weights bm25.run 0.5, gnn.run 0.5: 100.0 on 20 dev questions, RR@10 × 100; 50.0" in made.output
    )
    assert read_run(out) == fuse([ONE, TWO], "weighted", weights=(0.5, 0.5))
    qrels.write_text("".join(f"d{n}\tx\t1\n" for n in range(20)), encoding="utf-8")
    alone = CliRunner().invoke(cli, [*words, *dev_runs])
    assert "bm25.run alone, 100.0 on 20 dev questions" in alone.output
    assert [p.passage_id for p in read_run(out)["q1"]] == ["a", "b", "c"]
    for more, said in (
        ([*dev_runs, "--weights", "1,2"], "leave out --method and --weights"),
        ([*dev_runs, "--method", "rrf"], "leave out --method and --weights"),
        (dev_runs[:2], "there are 2 and 1"),
        ([*dev_runs, "--rrf-k", "10"], "--rrf-k is the constant of reciprocal ranks"),
    ):
        wrong = CliRunner().invoke(cli, [*words, *more])
        assert (wrong.exit_code, said in wrong.output) == (2, True)
    wrong = CliRunner().invoke(cli, [*words[:-2], *dev_runs])
    assert "--dev-run goes with --choose-on" in wrong.output
    wrong = CliRunner().invoke(cli, [*words[:-2], "--method", "weighted", "--rrf-k", "10"])
    assert (wrong.exit_code, "leave it out with normalised scores" in wrong.output) == (2, True)
