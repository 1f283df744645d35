import numpy as np

from gnnretrieval.data.records import Passage
from gnnretrieval.data.text_store import TextStore, passage_rows
from gnnretrieval.index.comparison import moved_hits


def test_of_equal_scores_a_comparison_shows_those_that_a_search_finds(tmp_path):
    with TextStore(tmp_path / "texts.sqlite", create=True) as texts:
        texts.add_passages(passage_rows(Passage(id_, "", "text") for id_ in ("b", "d", "a", "c")))
        ranking = np.arange(4), np.array([1.0, 0.5, 0.5, 0.5], dtype=np.float32)
        before, after = moved_hits(texts, ranking, ranking, 2)
    assert [moved.hit.id for moved in before] == [moved.hit.id for moved in after] == ["b", "d"]
    with TextStore(tmp_path / "texts.sqlite") as texts:
        reordered = np.array([0, 2, 3, 1]), ranking[1]  # equal scores come in any order
        before, _ = moved_hits(texts, reordered, ranking, 2)
    assert [(moved.hit.id, moved.elsewhere) for moved in before] == [("b", 1), ("d", 2)]
