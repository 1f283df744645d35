import numpy as np

from gnnretrieval.maps.points import figures_of, points_of


def test_all_points_are_drawn_where_they_are_few(built):
    points = points_of(built, 100)
    assert points.rows.tolist() == list(range(40))
    assert (points.after == built.after).all()
    assert len(points.questions) == built.num_questions


def test_removed_passages_are_left_out(built):
    points = points_of(built, 100, hidden=frozenset({0, 7}))
    assert points.rows.tolist() == [row for row in range(40) if row not in (0, 7)]
    assert (points.displacement == built.displacement[points.rows]).all()


def test_of_many_points_a_sample_is_drawn_that_is_the_same_each_time(built):
    points = points_of(built, 10)
    assert len(points.rows) == len(points.question_rows) == 10
    assert (np.diff(points.rows.astype(int)) > 0).all()
    assert points.to_bytes() == points_of(built, 10).to_bytes()
    figures = figures_of(built, points)
    assert (figures["passages"], figures["all_passages"]) == (10, 40)


def test_bytes_are_the_arrays_in_order(built):
    points = points_of(built, 10)
    raw = np.frombuffer(points.to_bytes(), dtype="<u4")
    assert len(raw) == 10 * (1 + 2 + 2 + 1) + 10 * (1 + 2)
    assert raw[:10].tolist() == points.rows.tolist()
    assert raw[10:30].view("<f4").tolist() == points.before.ravel().tolist()
    assert raw[50:60].view("<f4").tolist() == points.displacement.tolist()
    assert raw[60:70].tolist() == points.question_rows.tolist()
