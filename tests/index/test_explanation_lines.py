"""The lines that explain a passage."""

from gnnretrieval.cli.show import explanation_json, explanation_lines
from gnnretrieval.data.text_store import QueryRow
from gnnretrieval.index.explanations import Explanation, Neighbor
from gnnretrieval.index.retriever import Why


def test_a_weight_that_rounds_to_zero_has_no_sign():
    neighbors = [Neighbor("q", "who asks?", -0.0001, False), Neighbor("r", "and who?", -0.25, True)]
    lines = explanation_lines(Why(Explanation(neighbors, -0.001, None, None, 1.0), 2), 1)
    assert lines[0].endswith("attention to itself 0.00")
    assert [line.split("attention ")[1].split()[0] for line in lines[1:]] == ["0.000", "-0.250"]


def test_the_training_question_that_matched_comes_first():
    why = Why(Explanation([], 1.0, None, None, 1.0), 2, QueryRow(0, "q", "who asks?", "train"))
    assert explanation_lines(why, 1)[0] == "     matched its training question: who asks?"
    assert explanation_json(why)["matched"] == {"id": "q", "text": "who asks?"}
    assert "matched" not in explanation_json(why._replace(matched=None))
