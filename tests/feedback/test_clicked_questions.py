"""Clicked questions: unshown passages are neither a merit nor a fault, and rarely labelled answers count more."""

from datetime import datetime

import numpy as np
import pytest
import torch

from gnnretrieval.data import Dataset
from gnnretrieval.errors import InputError
from gnnretrieval.feedback import FeedbackSettings, SimulationSettings, import_feedback, judgement_table, simulate_log
from gnnretrieval.feedback.click_rates import ClickRates
from gnnretrieval.feedback.clicked_questions import ClickedQuestions, ShownPassage, clicked_questions
from gnnretrieval.feedback.judgement_table import read_judgements
from gnnretrieval.feedback.judging import label_chances
from gnnretrieval.nightly.gate import RanksOfModel, judge_gain
from gnnretrieval.recipes.update_settings import UpdateSettings

RATES = ClickRates(mean=0.2, background=0.01, attractive=0.8, share_attractive=0.2, share_background_clicks=0.05)


def questions(*examined, has_lists=True):
    """Questions that passages 0 and 1 were shown for, of which 1 is relevant and was examined so often."""
    shown = [[ShownPassage(0, 1.0, False), ShownPassage(1, value, True)] for value in examined]
    return ClickedQuestions.of(shown, RATES, FeedbackSettings(), has_lists)


def test_a_dataset_from_event_logs_says_what_was_shown_and_how_a_question_counts(tiny_dataset, tmp_path):
    log = tmp_path / "log.jsonl"
    said = simulate_log(Dataset.open(tiny_dataset), log, SimulationSettings(impressions=600, shown=4, wrong_clicks=0.1))
    dev, test = map(datetime.fromisoformat, (said.dev_from, said.test_from))
    settings = FeedbackSettings(confidence=0.7)
    made = import_feedback([log], tiny_dataset, tmp_path / "made", settings, dev_from=dev, test_from=test)
    dataset = Dataset.open(made.path)
    row_of = {id_: row for row, id_ in enumerate(dataset.passage_ids)}
    its = clicked_questions(made, "train", row_of, [*dataset.split("train"), "asked nowhere"])
    for relevant, shown, judged in zip(its.relevant, its.shown, dataset.split("train").values(), strict=False):
        assert relevant == [row_of[id_] for id_, value in judged.items() if value > 0]
        assert {*relevant} <= {*shown}
    assert max(len(shown) for shown in its.shown[:-1]) > 4  # lists vary
    examined = read_judgements(made.path, "train")
    one = next(row for row, weight in enumerate(its.weights) if 1.01 < weight < 10)
    pairs = examined[[*dataset.split("train")][one]]
    chance = label_chances(
        np.array([sum(pair.examined for pair in pairs if pair.is_relevant)]), made.report.rates, settings
    )
    assert its.weights[one] == pytest.approx(1 / chance[0])
    assert (its.relevant[-1], its.shown[-1], its.weights[-1]) == ([], None, 1.0)


def test_a_number_of_the_judgements_that_is_none_is_one_sentence(tmp_path):
    columns = ["split", "query-id", "corpus-id", *judgement_table._COLUMNS[3:]]
    assert columns == list(judgement_table._COLUMNS)
    cells = {"split": "train", "query-id": "q", "corpus-id": "p", "examined": "often"}
    rows = ("\t".join(columns), "\t".join(cells.get(column, "0") for column in columns))
    (tmp_path / judgement_table._FILE).write_text("\n".join(rows) + "\n")
    with pytest.raises(InputError, match=":2: examined is 'often', wanted a number"):
        read_judgements(tmp_path, "train")


def vectors(*scores):
    """Passages that every question of the vector 1 scores so."""
    return torch.tensor(scores, dtype=torch.float32)[:, None]


def test_a_passage_that_nobody_was_shown_is_taken_out_of_the_ranking():
    its = questions(1.0)
    unshown_first = RanksOfModel.of(its, vectors(0.2, 0.5, 0.9), torch.ones(1, 1))
    assert (unshown_first.among_shown.tolist(), unshown_first.whole.tolist()) == ([1.0], [0.5])
    shown_first = RanksOfModel.of(its, vectors(0.9, 0.5, 0.2), torch.ones(1, 1))
    assert (shown_first.among_shown.tolist(), shown_first.whole.tolist()) == ([0.5], [0.5])


def test_without_lists_all_passages_are_ranked_and_all_questions_count_alike():
    its = questions(1.0, 0.1, has_lists=False)
    ranks = RanksOfModel.of(its, vectors(0.2, 0.5, 0.9), torch.ones(2, 1))
    assert ranks.among_shown.tolist() == ranks.whole.tolist() == [0.5, 0.5]
    assert its.weights.tolist() == [1.0, 1.0]


def test_a_question_counts_by_the_inverse_of_the_chance_of_its_label_and_at_most_ten():
    weights = questions(5.0, 0.3, 0.001).weights
    assert weights[0] == pytest.approx(1 / (1 - np.exp(-0.8 * 5.0)))  # one click is enough
    assert weights[1] == pytest.approx(1 / (1 - np.exp(-0.8 * 0.3)))
    assert weights[2] == 10.0


def test_clicks_that_follow_the_served_ranking_do_not_refuse_an_equal_model():
    """Both models answer half of the questions at rank 1 and half at rank 6, but not the same ones."""
    rng = np.random.default_rng(0)
    count = 6000
    first_by_served, first_by_other = rng.random((2, count)) < 0.5
    examined = np.where(first_by_served, 1.0, 1 / 6)
    is_labelled = rng.random(count) < 1 - np.exp(-0.8 * examined)
    served, other = (np.where(one, 1.0, 1 / 6)[is_labelled] for one in (first_by_served, first_by_other))
    weights = questions(*examined[is_labelled]).weights
    assert (other - served).mean() < -0.15
    assert np.average(other - served, weights=weights) == pytest.approx(0, abs=0.03)


def gate_of(candidate, served, weights=None):
    count = len(served.whole)
    return judge_gain(candidate, served, {"all": np.ones(count, dtype=bool)}, UpdateSettings(), weights)


def test_a_better_order_of_shown_passages_is_promoted_unless_unshown_ones_make_it_a_loss():
    its = questions(*np.full(60, 1.0))
    asked = torch.ones(60, 1)
    served = RanksOfModel.of(its, vectors(0.9, 0.5, *np.zeros(20)), asked)
    better = gate_of(RanksOfModel.of(its, vectors(0.5, 0.9, *np.zeros(20)), asked), served)
    assert better.promotes
    assert (better.gain, better.whole.gain) == (0.5, 0.5)
    behind_unshown = gate_of(RanksOfModel.of(its, vectors(0.5, 0.9, *np.ones(20)), asked), served)
    assert not behind_unshown.promotes
    assert behind_unshown.gain == 0.5
    assert behind_unshown.reasons == ["If what nobody was shown is wrong, it loses 50.0 RR@10 on these 60 questions."]


def test_figures_of_the_gate_are_weighted_means():
    its = questions(*np.tile([5.0, 0.1], 30))
    asked = torch.tensor([[1.0], [-1.0]]).repeat(30, 1)
    served, candidate = (RanksOfModel.of(its, vectors(*one), asked) for one in ((0.1, 0.9), (0.9, 0.1)))
    gate = gate_of(candidate, served, its.weights)
    heavy = its.weights[1] / (its.weights[0] + its.weights[1])
    assert gate.gain == pytest.approx(0.5 * heavy - 0.5 * (1 - heavy))
    assert gate.candidate - gate.served == pytest.approx(gate.gain)
    assert gate.slices[0].gain == pytest.approx(gate.gain)
    assert gate.promotes
    assert not gate_of(candidate, served).promotes
