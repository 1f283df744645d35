from gnnretrieval.evaluation import format_values, write_values

VALUES = {"RR@10": {"q1": 1.0, "a long id": 1 / 3}, "Answer@100": {"q1": 0.0, "a long id": 1.0}}


def test_the_table_has_a_row_a_query():
    assert format_values(VALUES).splitlines() == [
        "query      RR@10  Answer@100",
        "q1         100.0         0.0",
        "a long id   33.3       100.0",
    ]


def test_the_file_is_as_trec_eval_q_gives_it_with_every_digit(tmp_path):
    write_values(tmp_path / "new" / "values.tsv", VALUES)
    lines = [line.split("\t") for line in (tmp_path / "new" / "values.tsv").read_text().splitlines()]
    assert [line[:2] for line in lines] == [
        ["RR@10", "q1"],
        ["Answer@100", "q1"],
        ["RR@10", "a long id"],
        ["Answer@100", "a long id"],
        ["RR@10", "all"],
        ["Answer@100", "all"],
    ]
    assert float(lines[2][2]) == 1 / 3
    assert float(lines[4][2]) == (1 + 1 / 3) / 2
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["values.tsv"]
