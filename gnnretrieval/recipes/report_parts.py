"""Parts that the reports of both kinds of recipe share: what was run, data, training, costs, provenance."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gnnretrieval.data import Dataset, inspect_dataset
from gnnretrieval.data.inspection.quantiles import Spread
from gnnretrieval.data.runs.trec import Run
from gnnretrieval.data.text_store import TextStore
from gnnretrieval.encoders.trained import GNN_ENCODER
from gnnretrieval.errors import InputError, counted
from gnnretrieval.evaluation import AnswerHits, Comparison, judged_in, parse_measures
from gnnretrieval.evaluation.comparison_page import Evidence, Texts
from gnnretrieval.pages.html import (
    Card,
    Figure,
    element,
    facts,
    figures,
    folded,
    join,
    paragraph,
    section,
    source,
    table,
    warnings,
)
from gnnretrieval.pages.plots import lying_bars
from gnnretrieval.pages.quantities import in_bytes
from gnnretrieval.storage.artifacts import Artifact
from gnnretrieval.training.encoder.loop import LOG
from gnnretrieval.training.gnn.selection import what_was_kept
from gnnretrieval.training.log_page import dev_table, plots_of, read_log, summary_of

COMPARISON = "comparison.json"
_TEXTS = "texts.sqlite"
_CURVES = 2  # curves that are not folded: dev and loss


class Reported(NamedTuple):
    """A recipe's run, as its report sees it.

    Attributes:
        directory: The run's directory, to which the report goes.
        dataset: The dataset that the run trained on and was measured on.
        artifacts: Artifacts by the name of their directory, in order.
        comparison: The comparison of the systems.
        runs: Run by system.
        texts: Name of a directory of the run with the passages' texts.
        answers: Retrieved passages that contain an answer; needed where a measure looks at answers.
    """

    directory: Path
    dataset: Dataset
    artifacts: Mapping[str, Artifact]
    comparison: Comparison
    runs: Mapping[str, Run]
    texts: str
    answers: AnswerHits

    def of_dataset(self, file: str) -> str:
        """Path of a dataset file from the report, or with the dataset's name if it is outside of the run."""
        inside = self.dataset.path.resolve()
        if inside.is_relative_to(self.directory.resolve()):
            return (inside.relative_to(self.directory.resolve()) / file).as_posix()
        return element("code", f"{self.dataset.name}/{file}")

    def passages(self, ids: Collection[str]) -> dict[str, str]:
        """Texts of some passages, by id."""
        with TextStore(self.directory / self.texts / _TEXTS) as store:
            rows = store.rows_of_passages(list(ids))
            return dict(zip(rows, store.texts_of_passages(list(rows.values())), strict=True))

    @property
    def judged(self) -> dict[str, dict[str, int]]:
        """Judgements of the reported split, as :func:`gnnretrieval.evaluation.judged_in` gives them."""
        return judged_in(self.dataset, self.comparison.split, parse_measures(self.comparison.measure_names))

    @property
    def judgements(self) -> str:
        """Path of the file with the judgements, or with the answers, from the report."""
        split = self.comparison.split
        judged = split in self.dataset.splits  # else the queries' own answers count
        return self.of_dataset(f"{self.dataset.qrels}/{split}.tsv" if judged else "queries.jsonl")

    def evidence(self) -> Evidence:
        """The comparison and the data behind it."""
        split = self.comparison.split
        passages: Texts = self.passages
        return Evidence(
            comparison=self.comparison,
            judged=self.judged,
            runs=self.runs,
            questions={query.id: query.text for query in self.dataset.queries_of(split)},
            passages=passages,
            files={name: f"rankings/{name}.run" for name in self.runs},
            judgements=self.judgements,
            table=COMPARISON,
            linked=True,
            answers=self.answers,
        )


def what_was_run(reported: Reported, first: Mapping[str, object]) -> Card:
    """The recipe with all its settings, seed, versions and revision.

    Args:
        reported: The run.
        first: Facts to show first, by name.
    """
    provenance = reported.comparison.provenance
    settings = [(name, _written(value)) for name, value in _flat(provenance["recipe"]) if value is not None]
    return section(
        "What was run",
        facts(
            {
                **first,
                "git revision": element("code", provenance["git_revision"] or "not known"),
                "versions": ", ".join(f"{name} {version}" for name, version in provenance["versions"].items()),
            }
        ),
        folded(f"All {len(settings)} settings", table(("setting", "value"), settings, name="Settings")),
        source(COMPARISON),
    )


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{above}{name}.")
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            for number, part in enumerate(value, 1):
                yield from _flat(part, f"{above}{name}.{part.get('name', number)}.")
        else:
            yield f"{above}{name}", value


def _written(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "none" if value == {} else str(value)


def data(reported: Reported) -> Card:
    """The contents of the dataset, and warnings about it."""
    inspection = inspect_dataset(reported.dataset)
    splits = [
        (
            name,
            f"{split.queries:,}",
            f"{split.judgements:,}",
            f"{split.judgements_per_query:.2f}",
            f"{split.relevant_passages:,}",
            f"{inspection.shared_with_train.get(name, 0):,}",
        )
        for name, split in inspection.splits.items()
    ]
    seen = inspection.test_passages_in_train_share
    files = ("corpus.jsonl", "queries.jsonl", *(f"{reported.dataset.qrels}/{name}.tsv" for name in inspection.splits))
    head = ("split", "queries", "judgements", "per query", "relevant passages", "queries with a train query's text")
    repeated = f"{counted(inspection.duplicate_passages, 'passage')}, {counted(inspection.duplicate_queries, 'query')}"
    return section(
        "Data",
        warnings(inspection.warnings),
        facts(
            {
                "dataset": inspection.name,
                "its content hash": element("code", inspection.hash),
                "passages": f"{inspection.passages:,}; words {_spread(inspection.words_per_passage)}",
                "queries": f"{inspection.queries:,}; words {_spread(inspection.words_per_query)}; "
                f"{inspection.unjudged_queries:,} not judged",
                "passages without title": f"{inspection.passages_without_title:,}",
                "repeated texts": repeated,
                "relevant in test and in train": "not known" if seen is None else f"{seen:.1%} of test's passages",
            }
        ),
        table(head, splits, numbers=range(1, 6), name="Splits"),
        source(*map(reported.of_dataset, files)),
    )


def _spread(words: Spread) -> str:
    return f"median {words.median:,}, p95 {words.p95:,}, most {words.max:,}"


def training(reported: Reported, name: str) -> Card:
    """A trained artifact: what dev chose, and the curves of its log."""
    artifact = reported.artifacts[name]
    title, kept = f"Training: {name}", join([facts(_chosen(artifact)), source(f"{name}/meta.json")])
    try:
        log = read_log(artifact.path / LOG)
    except InputError:
        return section(title, kept, paragraph(f"There are no curves: {LOG} is missing, or of another version."))
    named = source(f"{name}/{LOG}")
    shown = plots_of(log, named)
    return section(
        title,
        paragraph(summary_of(log)),
        kept,
        figures(shown[:_CURVES]),
        folded("Further curves", figures(shown[_CURVES:])),
        folded("Every measurement on dev", dev_table(log), named),
    )


def _chosen(artifact: Artifact) -> dict[str, object]:
    """What was kept, and the values on dev that decided it."""
    dev = artifact.meta["dev"]
    shown: dict[str, object] = {}
    if "queries" in dev:
        shown["chosen on"] = f"{counted(dev['queries'], 'query')} of {dev.get('split', 'dev')}"
    if artifact.meta["kind"] != GNN_ENCODER:
        best = dev["best"]
        measured = ", ".join(f"{name} {100 * value:.1f}" for name, value in best["dev"].items())
        return {**shown, "kept": f"step {best['step']:,}, epoch {best['epoch']:g}: {measured}"}
    chosen, best = dev["chosen"], dev["best"]
    shown["kept"] = what_was_kept(dev)
    shown["RR@10 on dev"] = f"{100 * chosen['RR@10']:.1f}; the dual-encoder's {100 * dev['dual_encoder']['RR@10']:.1f}"
    shown["gain on dev"] = f"{100 * best['gain']:+.1f}, p = {best['p']:.2g} (paired, one-sided)"
    if joint := dev.get("joint"):
        shown["gain over that by training the query encoder"] = (
            f"{100 * joint['gain']:+.1f}, {'kept' if joint['kept'] else 'left out'}"
        )
    if best["gain"] > 0 and not dev.get("believed", True):  # earlier versions did not write the key
        shown["accepted"] = "no: the gain may be chance, and the embeddings are the dual-encoder's"
    return shown


def costs(reported: Reported) -> Card:
    """Time to make each artifact, and its size on disk."""
    rows, sizes = [], {}
    inodes: dict[tuple[int, int], int] = {}
    for name, artifact in reported.artifacts.items():
        stats = [(artifact.path / file).stat() for file in ("meta.json", *artifact.meta["files"])]
        inodes |= {(stat.st_dev, stat.st_ino): stat.st_size for stat in stats}
        sizes[name] = sum(stat.st_size for stat in stats)
        took = artifact.meta.get("seconds")
        rows.append((name, artifact.meta["kind"], _duration(took), in_bytes(sizes[name]), artifact.meta["made"]))
    disk = in_bytes(sum(inodes.values()))
    bars = lying_bars(
        f"Bytes on disk: {disk} in all", [(name, [(size, in_bytes(size))]) for name, size in sizes.items()]
    )
    meaning = f"{disk} in all, where a file that several artifacts share counts once; it is in the bar of each of them."
    metas = source(*(f"{name}/meta.json" for name in reported.artifacts))
    return section(
        "Costs",
        table(("directory", "what it is", "made in", "on disk", "finished"), rows, numbers=[2, 3], name="Costs"),
        paragraph("A time is missing where the run was interrupted, or an earlier version recorded none."),
        metas,
        figures([Figure("Bytes on disk", meaning, bars, metas)]),
    )


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return f"{seconds:,.1f} s" if seconds < 100 else f"{seconds / 60:,.1f} min"


def where_it_is_from(reported: Reported) -> Card:
    """Content hash and git revision of each artifact."""
    rows = [
        (name, element("code", artifact.hash), element("code", artifact.meta.get("git_revision") or "not known"))
        for name, artifact in reported.artifacts.items()
    ]
    return section(
        "Provenance",
        join([table(("directory", "content hash", "git revision"), rows, name="Artifacts")]),
        source(*(f"{name}/meta.json" for name in reported.artifacts)),
    )
