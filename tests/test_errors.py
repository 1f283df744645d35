import pytest

from gnnretrieval.errors import counted


@pytest.mark.parametrize(
    ("count", "words", "said"),
    [
        (1, ["query"], "1 query"),
        (0, ["query"], "0 queries"),
        (1234, ["hard negative"], "1,234 hard negatives"),
        (2, ["day"], "2 days"),
        (1, ["file is", "files are"], "1 file is"),
        (2, ["file is", "files are"], "2 files are"),
    ],
)
def test_a_count_agrees_with_its_noun(count, words, said):
    assert counted(count, *words) == said
