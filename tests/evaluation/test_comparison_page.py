import pytest

from gnnretrieval.data.records import ScoredPassage
from gnnretrieval.evaluation import compare, relevant_ranks
from gnnretrieval.evaluation.comparison_page import Evidence, comparison_page
from gnnretrieval.evaluation.comparison_plots import by_question
from gnnretrieval.pages.html import Html
from tests.html_page import EVIL, Page, assert_opens_offline

QUERIES = [f"q{n:02d}" for n in range(20)]
QRELS = {query: {"gold": 1, "wrong": 0} for query in QUERIES}
PROVENANCE = {
    "dataset": {
        "name": "tiny",
        "hash": "53aa51" * 10,
        "passages": 11,
        "queries": 20,
        "splits": {"test": 20},
    },
    "runs": {"bm25": "aa" * 32, "dual-encoder": "bb" * 32, "gnn-encoder": "cc" * 32},
    "versions": {"numpy": "2.4.6"},
}


def ranking(position):
    """A ranking with the relevant passage at ``position``, from 1; 0: without it."""
    names = [f"d{n}" for n in range(10)]
    if position:
        names.insert(position - 1, "gold")
    return [ScoredPassage(name, -float(n)) for n, name in enumerate(names)]


RUNS = {
    "bm25": {query: ranking(1 + n % 5) for n, query in enumerate(QUERIES)},
    "dual-encoder": {query: ranking(2 if n else 0) for n, query in enumerate(QUERIES)},
    "gnn-encoder": {query: ranking(1 if n < 15 else 4) for n, query in enumerate(QUERIES)},
}


def evidence_of(text="a question", passage="a passage", systems=tuple(RUNS), **more):
    runs = {system: RUNS[system] for system in systems}
    provenance = PROVENANCE | {"runs": {system: PROVENANCE["runs"][system] for system in systems}}
    found = compare(QRELS, runs, "dual-encoder", ["RR@10", "R@1"], "test", provenance, randomisation=True)
    return Evidence(
        comparison=found,
        judged=QRELS,
        runs=runs,
        questions=dict.fromkeys(QUERIES, text),
        passages=lambda ids: dict.fromkeys(ids, passage),
        files={system: f"{system}.run" for system in systems},
        judgements="tiny/qrels/test.tsv",
        **more,
    )


@pytest.fixture(scope="module")
def evidence():
    return evidence_of()


@pytest.fixture(scope="module")
def page(evidence):
    return assert_opens_offline(comparison_page(evidence))


def test_the_table_has_every_mean_with_its_interval_and_the_best_bold(evidence, page):
    head, *rows = page.tables[0]
    assert head == ["system", "RR@10", "R@1", "Δ RR@10", "W/T/L"]
    for system, row in zip(evidence.comparison.systems, rows, strict=True):
        assert row[0] == system.name
        for cell, (measure, value) in zip(row[1:], system.measures.items(), strict=False):
            low, high = evidence.comparison.intervals[system.name][measure]
            assert cell.startswith(f"{100 * value:.1f}")
            assert cell.endswith(f"{100 * low:.1f} – {100 * high:.1f}")
            said = f"{system.name}: {100 * value:.4g} [{100 * low:.4g}, {100 * high:.4g}]\n"
            assert said in page.hovered
    assert "<strong>81.2</strong>" in comparison_page(evidence)


def test_every_test_is_on_it(evidence, page):
    head, *rows = page.tables[1]
    assert head[-2:] == ["p (randomisation)", "its Holm"]
    for test, row in zip(evidence.comparison.tests, rows, strict=True):
        assert row[:3] == [test.system, test.measure, f"{100 * test.difference:+.1f}"]
        assert row[7] == f"{test.wins}/{test.ties}/{test.losses}"


def test_questions_won_and_lost_are_counted_and_drawn(page):
    assert "gnn-encoder: 15 won, 0 tied, 5 lost" in page.seen
    assert "gnn-encoder: 15 won\n" in page.hovered
    assert "15 better, 0 the same, 5 worse" in page.seen


def test_sorted_differences_end_at_the_best_and_the_worst():
    values = {"a": {"1": 1.0, "2": 0.5, "3": 0.0}, "b": {"1": 0.0, "2": 0.5, "3": 0.25}}
    figure = by_question("RR@10", "a", "b", values, Html())
    assert "1 better, 1 the same, 1 worse" in figure.meaning
    plot = Page(figure.plot)
    assert plot.hovered == "1 better\n1 better\n1 worse\n1 worse\n"
    assert all(f">{tick}<" in figure.plot for tick in ("+100", "+50", "0"))


def test_the_questions_helped_and_hurt_most_have_their_passages_ranks(page):
    *_, helped, hurt, _ = page.tables
    assert helped[0][1:3] == ["dual-encoder", "gnn-encoder"]
    assert [row[0] for row in helped[1:3]] == ["a questionq00", "a questionq01"]
    assert helped[1][1:3] == ["0.0", "100.0"]
    assert helped[1][3] == "gold rank not found → 1a passage"
    assert helped[2][3] == "gold rank 2 → 1a passage"
    assert len(helped) == 11
    assert [row[3] for row in hurt[1:]] == ["gold rank 2 → 4a passage"] * 5


def test_where_it_is_from_names_hashes_and_versions(page):
    assert "53aa51" * 10 in page.seen
    assert page.tables[-1][1:] == [[name, f"{name}.run", hash_] for name, hash_ in PROVENANCE["runs"].items()]
    assert "numpy 2.4.6" in page.seen


def test_every_figure_names_its_files(evidence):
    text = comparison_page(evidence)
    figures = text.split("<figure>")[1:]
    assert len(figures) == 2 + 2 + 1 + 2
    assert all('<p class="source">From <code>' in figure for figure in figures)
    linked = comparison_page(evidence_of(table="comparison.json", linked=True))
    assert 'From <a href="comparison.json"><code>comparison.json</code></a>' in linked


def test_texts_are_shown_as_they_are_and_never_run():
    page = assert_opens_offline(comparison_page(evidence_of(EVIL, EVIL)))
    assert page.seen.count(EVIL) > 30


def test_one_run_alone_has_its_table_and_no_test():
    page = assert_opens_offline(comparison_page(evidence_of(systems=("dual-encoder",))))
    assert "Every test" not in page.seen
    assert len(page.tables) == 2


def test_the_same_evidence_gives_the_same_bytes(evidence):
    assert comparison_page(evidence) == comparison_page(evidence_of())


def test_relevant_ranks_are_of_relevant_passages_best_with_the_system_first():
    judged = {"gold": 1, "d3": 2, "d4": 0, "away": 1}
    assert relevant_ranks(judged, ranking(5), ranking(0)) == {"d3": (4, 4), "gold": (None, 5), "away": (None, None)}
    assert list(relevant_ranks(judged, ranking(5), ranking(0))) == ["d3", "gold", "away"]
