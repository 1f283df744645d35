"""The lines that explain a passage."""

from gnnretrieval.cli.show import explanation_lines
from gnnretrieval.index.explain import Explanation, Neighbor


def test_a_weight_that_rounds_to_zero_has_no_sign():
    neighbors = [Neighbor("q", "who asks?", -0.0001, False), Neighbor("r", "and who?", -0.25, True)]
    lines = explanation_lines(Explanation(neighbors, -0.001, None, None, 1.0), 2, 1)
    assert lines[0].endswith("attention to itself 0.00")
    assert [line.split("attention ")[1].split()[0] for line in lines[1:]] == ["0.000", "-0.250"]
