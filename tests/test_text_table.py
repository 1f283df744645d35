from gnnretrieval.pages.text_table import in_columns

ROWS = [["system", "RR@10", "note"], ["bm25", "7.5", ""], ["dual-encoder", "62.5", "untuned"]]


def test_the_first_columns_are_aligned_to_the_left_and_the_others_to_the_right():
    assert in_columns(ROWS) == [
        "system        RR@10     note",
        "bm25            7.5",
        "dual-encoder   62.5  untuned",
    ]
    assert in_columns(ROWS, left=3)[1:] == ["bm25          7.5", "dual-encoder  62.5   untuned"]
    assert in_columns([["1", "20"], ["100", "3"]], left=0) == ["  1  20", "100   3"]


def test_no_rows_are_no_lines():
    assert in_columns([]) == []
