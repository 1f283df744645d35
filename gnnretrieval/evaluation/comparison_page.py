"""A comparison as a page: its table, tests and plots, and the questions that the systems answer differently."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from gnnretrieval.data import Dataset
from gnnretrieval.data.runs.trec import Run
from gnnretrieval.evaluation import comparison_plots as plots
from gnnretrieval.evaluation.answers import AnswerHits
from gnnretrieval.evaluation.changed_queries import Change, most_changed, relevant_ranks
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

_RELEVANT = 4  # relevant passages shown of a question
Texts = Callable[[Collection[str]], Mapping[str, str]]


class Evidence(NamedTuple):
    """What a comparison was made from, as a page shows it.

    Attributes:
        comparison: The comparison.
        judged: Relevance by passage id by query id.
        runs: Run by system.
        questions: Text by query id.
        passages: Gives texts by passage id.
        files: The file of each run, by system, as the page names it.
        judgements: The file of the judgements, as the page names it.
        table: The file that holds the comparison; None: none does, it was computed for the page.
        linked: Whether the page lies where these files are found from.
        answers: Passages of the runs that hold an answer, where the main measure is of answers.
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
        """The systems but for the baseline."""
        return [system.name for system in self.comparison.systems if system.name != self.comparison.baseline]

    def source(self, *systems: str) -> Html:
        """The line that names what a figure of some systems is from; of none: what the table is from."""
        if self.table is not None and not systems:
            return source(self.table, linked=self.linked)
        named = [self.files[system] for system in systems or self.runs]
        return source(*named, self.judgements, linked=self.linked)


def comparison_page(evidence: Evidence, most: int = 10) -> str:
    """The page.

    Args:
        evidence: What it shows.
        most: Questions helped, and hurt, that are shown of each system.
    """
    found = evidence.comparison
    return page(
        f"Comparison on {found.split}",
        f"{', '.join(evidence.others) or found.baseline}"
        + (f" against {found.baseline}" if evidence.others else "")
        + f": {found.queries:,} queries of {found.split}.",
        *comparison_sections(evidence, most),
        section("Where this is from", _provenance(evidence)),
    )


def comparison_sections(evidence: Evidence, most: int) -> Iterator[Card]:
    """The cards of a comparison: table and means, every test, and the differences question by question.

    Args:
        evidence: What they show.
        most: Questions helped, and hurt, that a last card shows of each system; 0: no such card.
    """
    found = evidence.comparison
    measure = found.measure_names[0]
    yield section(
        "Comparison", html_comparison(found), evidence.source(), figures(plots.means(found, evidence.source()))
    )
    if not evidence.others:
        return
    tested = figures([*plots.differences(found, evidence.source()), plots.wins(found, evidence.source())])
    yield section("Every test", html_tests(found), evidence.source(), tested)
    values = {
        system: next(iter(per_query(evidence.judged, run, [measure], evidence.answers).values()))
        for system, run in evidence.runs.items()
    }
    shown = [
        plots.by_question(measure, system, found.baseline, values, evidence.source(system, found.baseline))
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
        for what, some in (("helped", helped), ("hurt", hurt)):
            title = f"Most {what} by {system}: {len(some)} questions"
            content = _questions(evidence, system, some, texts)
            source_ = evidence.source(system, baseline)
            parts.append(folded(title, content, source_, is_open=system == evidence.others[-1]))
    return section("The questions that changed most", *parts)


def _ranks(evidence: Evidence, system: str, change: Change) -> dict[str, tuple[int | None, int | None]]:
    """Ranks before and after of the relevant passages that are shown of a question."""
    runs, query = evidence.runs, change.query
    ranks = relevant_ranks(
        evidence.judged[query], runs[system].get(query, []), runs[evidence.comparison.baseline].get(query, [])
    )
    return dict(list(ranks.items())[:_RELEVANT])


def _questions(evidence: Evidence, system: str, changes: Sequence[Change], texts: Mapping[str, str]) -> Html:
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
        asked = join(
            [
                short(evidence.questions.get(change.query, "")),
                element("div", element("code", change.query), class_="soft"),
            ]
        )
        rows.append((asked, f"{100 * change.before:.1f}", f"{100 * change.after:.1f}", join(relevant)))
    head = ("question", baseline, system, f"relevant passages, rank with {baseline} → with {system}")
    return join(
        [
            paragraph(f"{measure} × 100 of each question with {baseline} and with {system}."),
            table(head, rows, numbers=[1, 2], name=f"Questions changed by {system}"),
        ]
    )


def in_words(rank: int | None) -> str:
    """A rank; ``not found`` where the ranking lacks the passage."""
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
    """Reads texts of some passages from a dataset's file."""

    def read(ids: Collection[str]) -> dict[str, str]:
        wanted, found = set(ids), {}
        with progress("reading passages", len(dataset.passage_ids), "passages") as meter:
            for passage in dataset.passages():
                if passage.id in wanted:
                    found[passage.id] = passage.full_text
                meter.advance()
        return found

    return read
