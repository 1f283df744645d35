"""The verdict on a run, by hand-made comparisons."""

from pathlib import Path

from gnnretrieval.evaluation import Comparison, TestResult
from gnnretrieval.recipes.hybrid import WITH, WITHOUT
from gnnretrieval.recipes.same_labels import COLD, WARM, SameLabels
from gnnretrieval.recipes.verdict import Verdict


def comparison(baseline, p=0.001, provenance=None, **values):
    """Systems with these RR@10, tested against the baseline with one p."""
    tests = [
        {
            "system": name,
            "measure": "RR@10",
            "difference": value - values[baseline],
            "p": p,
            "p_holm": 1.0,
            "wins": 30,
            "losses": 12,
        }
        for name, value in values.items()
        if name != baseline
    ]
    systems = [{"name": name, "measures": {"RR@10": value}} for name, value in values.items()]
    shape = {"split": "test", "baseline": baseline, "systems": systems, "tests": tests, "provenance": provenance or {}}
    return Comparison.from_json(shape)


def sentences(
    *,
    uses_graph=True,
    gnn=0.65,
    kept=True,
    p=0.001,
    baseline=0.6,
    p_baseline=0.01,
    groups=None,
    hybrids=None,
    labels=True,
    one_vector=None,
):
    values = {"bm25": 0.42, "dual-encoder": 0.44, "gnn-encoder": gnn}
    if one_vector is not None:
        values["gnn-encoder-one-vector"] = one_vector
    same = SameLabels(
        comparison("label-mean", p_baseline, **values, **{"label-mean": baseline}), groups={}, over_encoder=groups or {}
    )
    verdict = Verdict(
        comparison("dual-encoder", p, **values),
        same if labels else None,
        hybrids,
        system="gnn-encoder",
        bm25="bm25",
        kept=kept,
        directory=Path("work/mine"),
        uses_graph=uses_graph,
    )
    return verdict.sentences()


def pipelines(value, weights=(0.3, 0.7), p=0.001, without=(0, 1)):
    choices = {
        WITHOUT: {"runs": ["bm25", "label-mean"], "weights": list(without)},
        WITH: {"runs": ["bm25", "gnn-encoder"], "weights": list(weights)},
    }
    values = {"bm25": 0.42, WITHOUT: 0.6, WITH: value}
    return comparison(WITHOUT, p, {"fusion_choices": choices}, **values)


def test_the_gain_over_encoder_and_baseline_comes_first_and_the_next_step_last():
    said = sentences()
    assert said[0] == "The gnn-encoder ranks better than its dual-encoder: RR@10 65.0 against 44.0 (+21.0, p = 0.001)."
    assert said[1] == (
        "It ranks better than label-mean, the strongest baseline on dev with the same labels (+5.0, p = 0.01)."
    )
    assert said[2:] == [
        "BM25 alone has 42.0.",
        "30 questions rank better than with the dual-encoder, 12 worse.",
        "Next: `gnnretrieval serve work/mine` shows for each question what moved, and why.",
    ]


def test_one_vector_a_passage_is_compared_with_the_same_baseline_and_served_where_it_is_best():
    said = sentences(one_vector=0.7)
    assert said[2] == (
        "The gnn-encoder's index has one vector more for each training question of a passage. With one a passage "
        "(`work/mine/index-one-vector`) it has 70.0 (+10.0, p = 0.01, to label-mean)."
    )
    joined = pipelines(0.7, weights=(0, 1))
    joined.provenance["fusion_choices"][WITH]["runs"][1] = "gnn-encoder-one-vector"
    assert "serve work/mine --pipeline" in sentences(one_vector=0.7, hybrids=joined)[-1]
    assert "--pipeline" not in sentences(hybrids=pipelines(0.7, weights=(0, 1)))[-1]


def test_a_gain_that_a_simple_model_has_too_is_no_gain_of_the_graph():
    said = sentences(baseline=0.64, p_baseline=0.3)[1]
    assert said.endswith("may be chance (+1.0, p = 0.3): a simple use of the labels gains as well.")
    assert sentences(baseline=0.64, p_baseline=0.3, p=0.4)[1].endswith("may be chance (+1.0, p = 0.3).")


def test_a_head_without_messages_is_called_so():
    (first, *others), (with_messages, *same) = sentences(uses_graph=False), sentences()
    alone = "It has linear heads alone: on dev, messages along the graph gained nothing significant."
    assert first == f"{with_messages} {alone}"
    assert others == same


def test_a_better_baseline_is_what_it_advises():
    said = sentences(baseline=0.7)
    assert "It ranks worse than label-mean" in said[1]
    assert said[-1].startswith("Next: use label-mean")


def test_a_loss_or_a_gain_by_chance_over_the_encoder_is_called_so():
    assert "ranks worse than its dual-encoder" in sentences(gnn=0.4)[0]
    assert "does not rank significantly differently from its dual-encoder" in sentences(p=0.2)[0]


def test_where_training_kept_the_encoder_nothing_is_claimed():
    said = sentences(kept=False, gnn=0.44)
    assert said[0].startswith("Training kept the vectors of the dual-encoder")
    assert said[1:] == [
        "BM25 alone has 42.0.",
        "Next: `gnnretrieval graph inspect work/mine/graph` shows what the graph lacks.",
    ]


def test_a_group_that_lost_is_named():
    groups = {WARM: TestResult(0.3, 0.001, 9, 0, 1), COLD: TestResult(-0.05, 0.02, 1, 0, 9)}
    assert sentences(groups=groups)[3].endswith("worse as a group: questions about passages without (-5.0, p = 0.02).")
    by_chance = {COLD: TestResult(-0.05, 0.2, 1, 0, 9)}
    assert sentences(groups=by_chance)[3].endswith("12 worse.")


def test_pipelines_are_named_by_what_has_weight_in_them():
    said = sentences(hybrids=pipelines(0.7))
    assert said[2] == (
        "BM25 alone has 42.0. Of the pipelines with BM25, the best on dev with the graph (bm25 + gnn-encoder) has "
        "70.0, and the best without it (label-mean alone) 60.0: a significant difference (+10.0, p = 0.001)."
    )
    assert "may be chance" in sentences(hybrids=pipelines(0.7, p=0.4))[2]


def test_one_pipeline_that_is_best_with_and_without_the_graph_is_not_compared_with_itself():
    said = sentences(hybrids=pipelines(0.6, weights=(1, 0), without=(1, 0)))[2]
    assert said == (
        "BM25 alone has 42.0. Of the pipelines with BM25, the best on dev is bm25 alone, without the graph: 60.0."
    )


def test_a_pipeline_with_bm25_is_what_to_serve():
    assert "serve work/mine --pipeline` serves" in sentences(hybrids=pipelines(0.7))[-1]
    assert "--pipeline" not in sentences(hybrids=pipelines(0.65, weights=(0, 1)))[-1]


def test_it_needs_no_baselines():
    assert len(sentences(labels=False)) == 4


def test_a_better_pipeline_without_the_graph_is_what_it_advises():
    assert sentences(hybrids=pipelines(0.5))[-1].startswith("Next: use label-mean alone; `comparison-with-bm25.json`")
    assert "--pipeline" in sentences(hybrids=pipelines(0.5, p=0.4))[-1]
