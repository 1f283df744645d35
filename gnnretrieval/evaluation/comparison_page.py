"""The page of a comparison: its table, tests and plots, and the questions that changed most."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from gnnretrieval.data import Dataset
from gnnretrieval.data.runs.trec import Run
from gnnretrieval.errors import counted
from gnnretrieval.evaluation import comparison_plots as plots
from gnnretrieval.evaluation.answers import AnswerHits
from gnnretrieval.evaluation.changed_queries import ChangedQuery, most_changed, relevant_ranks
from gnnretrieval.evaluation.compare import Comparison
from gnnretrieval.evaluation.measures import per_query
from gnnretrieval.evaluation.tables import html_comparison, html_tests
from gnnretrieval.pages.html import (
    Card,
    Html,
    element,
    facts,
    figures,
    folded,
    join,
    page,
    paragraph,
    section,
    short,
    source,
    table,
)
from gnnretrieval.progress import progress

_RELEVANT = 4  # relevant passages that the page shows for a question, at most
Texts = Callable[[Collection[str]], Mapping[str, str]]


class Evidence(NamedTuple):
    """A comparison and the data behind it, as a page shows them.

    Attributes:
        comparison: The comparison.
        judged: Relevance by passage id by query id.
        runs: Run by system.
        questions: Text by query id.
        passages: A function from passage ids to texts by passage id.
        files: File of each run, by system, as the page names it.
        judgements: File of the judgements, as the page names it.
        table: File that holds the comparison; None: it was computed for the page.
        linked: Whether the page links these files: it lies where the links lead to them.
        answers: Retrieved passages that contain an answer; needed where the main measure looks at answers.
    """

    comparison: Comparison
    judged: Mapping[str, Mapping[str, int]]
    runs: Mapping[str, Run]
    questions: Mapping[str, str]
    passages: Texts
    files: Mapping[str, str]
    judgements: str
    table: str | None = None
    linked: bool = False
    answers: AnswerHits | None = None

    @property
    def others(self) -> list[str]:
        """The systems without the baseline."""
        return [system.name for system in self.comparison.systems if system.name != self.comparison.baseline]

    def source(self, *systems: str) -> Html:
        """The line that names the files behind a figure of ``systems``; without systems, behind the table."""
        if self.table is not None and not systems:
            return source(self.table, linked=self.linked)
        named = [self.files[system] for system in systems or self.runs]
        return source(*named, self.judgements, linked=self.linked)


def comparison_page(evidence: Evidence, most: int = 10) -> str:
    """The page as HTML.

    Args:
        evidence: What the page shows.
        most: How many helped and how many hurt questions it shows for each system.
    """
    comparison = evidence.comparison
    return page(
        f"Comparison on {comparison.split}",
        f"{', '.join(evidence.others) or comparison.baseline}"
        + (f" against {comparison.baseline}" if evidence.others else "")
        + f": {counted(comparison.queries, 'query')} of {comparison.split}.",
        *comparison_sections(evidence, most),
        section("Provenance", _provenance(evidence)),
    )


def comparison_sections(evidence: Evidence, most: int) -> Iterator[Card]:
    """The cards of a comparison: table and means, every test, differences by question, and the largest changes.

    Args:
        evidence: What the cards show.
        most: How many helped and how many hurt questions the last card shows for each system; 0: no last card.
    """
    comparison = evidence.comparison
    measure = comparison.measure_names[0]
    first, *others = plots.means(comparison, evidence.source())
    further = [folded("The other measures", figures(others))] if others else []
    yield section("Comparison", html_comparison(comparison), evidence.source(), figures([first]), *further)
    if not evidence.others:
        return
    tested = figures([*plots.differences(comparison, evidence.source()), plots.wins(comparison, evidence.source())])
    yield section("Every test", html_tests(comparison), evidence.source(), tested)
    values = {
        system: next(iter(per_query(evidence.judged, run, [measure], evidence.answers).values()))
        for system, run in evidence.runs.items()
    }
    shown = [
        plots.by_question(measure, system, comparison.baseline, values, evidence.source(system, comparison.baseline))
        for system in evidence.others
    ]
    yield section("Question by question", figures(shown))
    if most:
        yield _changed(evidence, values, most)


def _changed(evidence: Evidence, values: Mapping[str, Mapping[str, float]], most: int) -> Card:
    baseline = evidence.comparison.baseline
    changes = {system: most_changed(values[system], values[baseline], most) for system in evidence.others}
    shown = {
        passage
        for system, (helped, hurt) in changes.items()
        for change in (*helped, *hurt)
        for passage in _ranks(evidence, system, change)
    }
    texts = evidence.passages(shown)
    parts = []
    for system, (helped, hurt) in changes.items():
        for kind, group in (("helped", helped), ("hurt", hurt)):
            title = f"Most {kind} by {system}: {counted(len(group), 'question')}"
            content = _questions(evidence, system, group, texts)
            source_ = evidence.source(system, baseline)
            parts.append(folded(title, content, source_, is_open=system == evidence.others[-1]))
    return section("The questions that changed most", *parts)


def _ranks(evidence: Evidence, system: str, change: ChangedQuery) -> dict[str, tuple[int | None, int | None]]:
    """Ranks before and after of the relevant passages that the page shows for a question."""
    runs, query = evidence.runs, change.query
    ranks = relevant_ranks(
        evidence.judged[query], runs[system].get(query, []), runs[evidence.comparison.baseline].get(query, [])
    )
    return dict(list(ranks.items())[:_RELEVANT])


def _questions(evidence: Evidence, system: str, changes: Sequence[ChangedQuery], texts: Mapping[str, str]) -> Html:
    measure, baseline = evidence.comparison.measure_names[0], evidence.comparison.baseline
    rows = []
    for change in changes:
        ranks = _ranks(evidence, system, change)
        more = sum(grade > 0 for grade in evidence.judged[change.query].values()) - len(ranks)
        relevant = [
            element(
                "div",
                element("code", passage),
                f" rank {in_words(before)} → ",
                element("strong", in_words(after)),
                element("div", short(texts.get(passage, ""), 160), class_="soft"),
            )
            for passage, (before, after) in ranks.items()
        ]
        if more > 0:
            relevant.append(element("div", f"and {more} more", class_="soft"))
        question = join(
            [
                short(evidence.questions.get(change.query, "")),
                element("div", element("code", change.query), class_="soft"),
            ]
        )
        rows.append((question, f"{100 * change.before:.1f}", f"{100 * change.after:.1f}", join(relevant)))
    head = ("question", baseline, system, f"relevant passages, rank with {baseline} → with {system}")
    return join(
        [
            paragraph(f"{measure} × 100 of each question with {baseline} and with {system}."),
            table(head, rows, numbers=[1, 2], name=f"Questions changed by {system}"),
        ]
    )


def in_words(rank: int | None) -> str:
    """A rank as text; ``not found`` where the ranking lacks the passage."""
    return "not found" if rank is None else f"{rank:,}"


def _provenance(evidence: Evidence) -> Html:
    provenance = evidence.comparison.provenance
    dataset, runs = provenance["dataset"], provenance["runs"]
    splits = ", ".join(f"{count:,} of {name}" for name, count in dataset["splits"].items())
    return join(
        [
            facts(
                {
                    "dataset": dataset["name"],
                    "its content hash": element("code", dataset["hash"]),
                    "judgements": evidence.judgements,
                    "passages": f"{dataset['passages']:,}",
                    "queries": f"{dataset['queries']:,} ({splits})",
                    "versions": ", ".join(f"{name} {version}" for name, version in provenance["versions"].items()),
                }
            ),
            table(
                ("system", "run", "sha256"),
                [(name, evidence.files[name], element("code", hash_)) for name, hash_ in runs.items()],
                name="Runs",
            ),
        ]
    )


def texts_of(dataset: Dataset) -> Texts:
    """A function that reads the texts of some passages from a dataset's file."""

    def read(ids: Collection[str]) -> dict[str, str]:
        wanted, texts = set(ids), {}
        with progress("reading passages", len(dataset.passage_ids), "passages") as meter:
            for passage in dataset.passages():
                if passage.id in wanted:
                    texts[passage.id] = passage.full_text
                meter.advance()
        return texts

    return read
