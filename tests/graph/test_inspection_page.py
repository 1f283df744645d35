import pytest

from gnnretrieval.graph import inspect_graph
from gnnretrieval.graph.inspection.plots import plots_of
from tests.html_page import EVIL, Page, assert_opens_offline


@pytest.fixture(scope="module")
def found(tiny_graph):
    return inspect_graph(tiny_graph)


def test_the_page_opens_offline(found):
    text = found.to_html()
    page = assert_opens_offline(text)
    assert f"{found.path}: the graph" in page.seen
    assert len(text) < 100_000


def test_every_plot_says_its_values(found):
    page = Page(found.to_html())
    titles = [figure.title for figure in plots_of(found)]
    assert len(titles) == 5
    assert all(title in page.seen for title in titles)
    recall = found.labelled_passage_among_neighbours
    for rank, share in recall.items():
        assert f"share of queries: {100 * share:.4g} % at rank {rank}\n" in page.hovered
    for bin_ in found.queries_per_passage.histogram:
        name = str(bin_.first) if bin_.first == bin_.last else f"{bin_.first}-{bin_.last}"
        assert (f"{name}: {bin_.passages}\n" in page.hovered) == (bin_.passages > 0)
    assert all(f"{file}: " in page.hovered for file in found.files)
    assert all(f"rank {rank}\n" in page.hovered for rank in (1, 2, 5))


def test_warnings_and_tables_are_on_the_page(found):
    page = Page(found.model_copy(update={"warnings": ["Something is wrong & must change."]}).to_html())
    assert "Something is wrong & must change." in page.seen
    most, disagreeing, splits = page.tables  # no near-duplicates among them
    assert [row[:2] for row in most[1:]] == [[one.id, str(one.queries)] for one in found.most_found]
    assert [row[0] for row in disagreeing[1:]] == [one.id for one in found.agreement.disagreeing]
    assert [row[0] for row in splits[1:]] == list(found.overlap.splits)
    assert "No warnings." in Page(found.model_copy(update={"warnings": []}).to_html()).seen


def test_texts_are_shown_as_they_are_and_never_run(hand_made):
    queries = [[1, 0], [1, 0.01], [0, 1], [0, 1.0]]
    store = hand_made(
        [[0, 1]] * 4,
        passages=[[1, 0], [0.99, 0]],
        queries=queries,
        labels=[(0, 0), (2, 0)],
        passage_texts=[EVIL] * 2,
        query_texts=[EVIL] * 4,
    )
    page = assert_opens_offline(inspect_graph(store).model_copy(update={"files": {EVIL: 1}, "path": EVIL}).to_html())
    assert page.seen.count(EVIL) > 4
    assert EVIL in page.hovered
