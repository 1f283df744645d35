"""How well labels from clicks match the truth, and what a GNN-encoder learns from them.

    .venv/bin/python benchmarks/feedback_import.py --work WORK

Clicks are simulated over the docstring corpus, with position bias and 0, 10, 20 and 40 % wrong clicks. Thresholds are
chosen on the dev questions (``--choose`` prints the table), and tables are on training and test questions. Features and
models are kept in WORK; after an interruption, the same command continues. Writes results/feedback_import.json and .md.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import click
import numpy as np
from feedback_import_page import IMPORTED, PLAIN, RAW, SEEDS, TRUE, WEIGHTED, markdown
from feedback_propensities import ESTIMATES

from gnnretrieval.data import Dataset, make_docstring_corpus
from gnnretrieval.data.beir import write_qrels
from gnnretrieval.data.records import Qrel
from gnnretrieval.encoders.bm25 import BM25
from gnnretrieval.encoders.features import Features, encode_dataset
from gnnretrieval.encoders.known_vectors import KnownVectors
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.evaluation import paired_test, per_query
from gnnretrieval.feedback import FeedbackSettings, SimulationSettings, import_feedback, simulate_log
from gnnretrieval.feedback.cleaning import Impression, clean, question_key
from gnnretrieval.feedback.click_rates import ClickRates, Votes, click_rates, count_votes
from gnnretrieval.feedback.events import EventLog
from gnnretrieval.feedback.judging import Judgement, judge
from gnnretrieval.feedback.propensities import Propensities, estimate_propensities, placed
from gnnretrieval.feedback.simulation import SimulationReport
from gnnretrieval.graph.build import build_graph
from gnnretrieval.graph.settings import GraphSettings
from gnnretrieval.index import build_index
from gnnretrieval.index.search import bm25_run, index_run
from gnnretrieval.progress import say, show_progress
from gnnretrieval.storage.provenance import git_revision, library_versions, write_json
from gnnretrieval.training import TrainSettings, embed_passages, train_gnn

RESULTS = Path(__file__).resolve().parent / "results"
WRONG = (0.0, 0.1, 0.2, 0.4)
SPLITS = ("train", "dev", "test")
SHOWN = 15  # passages that BM25 ranks; ten of them are shown
SIZES = (3_000, 10_000, 30_000)  # their impressions
MEASURE = "RR@10"
GRID = {
    "level": (0.02, 0.05, 0.1),
    "of_best": (0.5, 0.7, 0.9),
    "of_background": (0.0, 1.0, 1.5, 2.0),
}

Truth = Mapping[str, frozenset[str]]  # relevant passages by normalised question


class Log(NamedTuple):
    """A simulated log: its file, and its impressions by the split of their question."""

    file: Path
    truth: SimulationReport
    by_split: dict[str, list[Impression]]

    def votes(self, bias: Propensities) -> tuple[dict[str, Votes], ClickRates]:
        """Votes by split, and the click rates of train."""
        votes = {split: count_votes(impressions, bias) for split, impressions in self.by_split.items()}
        return votes, click_rates(votes["train"])

    def judgements(self, bias: Propensities) -> dict[str, list[Judgement]]:
        """Judgements by split."""
        votes, rates = self.votes(bias)
        return {split: judge(votes[split], rates, FeedbackSettings()) for split in votes}


class Simulator:
    """Simulates users of BM25 over a dataset.

    Attributes:
        truth: Relevant passages by split.
    """

    def __init__(self, dataset: Dataset, place: Path) -> None:
        self.dataset, self.place = dataset, place
        queries = {query.id: query.text for query in dataset.queries()}
        bm25 = BM25([passage.full_text for passage in dataset.passages()])
        run = bm25_run(bm25, queries, dataset.passage_ids, SHOWN)
        self.rankings = {query: [hit.passage_id for hit in hits] for query, hits in run.items()}
        self.truth: dict[str, Truth] = {}
        for split in SPLITS:
            truth: dict[str, set[str]] = {}
            for query, grades in dataset.split(split).items():
                relevant = {passage for passage, grade in grades.items() if grade > 0}
                truth.setdefault(question_key(queries[query]), set()).update(relevant)
            self.truth[split] = {question: frozenset(passages) for question, passages in truth.items()}

    def log(self, **settings: Any) -> Log:
        """Simulate, and read the log back as feedback import does."""
        parsed = SimulationSettings.parse(settings)
        file = self.place / f"log-{parsed.wrong_clicks:g}-{parsed.impressions}-{parsed.seed}.jsonl"
        file.unlink(missing_ok=True)
        report = simulate_log(self.dataset, file, parsed, rankings=self.rankings)
        cleaned = clean(EventLog(file).events(), set(self.dataset.passage_ids), FeedbackSettings())
        by_split: dict[str, list[Impression]] = {name: [] for name in SPLITS}
        for impression in cleaned.impressions:
            by_split[next(name for name in SPLITS if impression.question in self.truth[name])].append(impression)
        return Log(file, report, by_split)


def propensity_errors(simulator: Simulator) -> list[dict[str, Any]]:
    """Mean absolute error of the logarithm of the propensities, by size of the log and estimate."""
    rows = []
    for size, wrong in product(SIZES, (0.1, 0.4)):
        errors: dict[str, list[float]] = {name: [] for name in (*ESTIMATES, IMPORTED)}
        for seed in range(SEEDS):
            log = simulator.log(impressions=size, wrong_clicks=wrong, seed=seed)
            impressions, planted = log.by_split["train"], np.array(log.truth.propensities)
            estimates = {name: estimate(placed(impressions), len(planted)) for name, estimate in ESTIMATES.items()}
            estimates[IMPORTED] = np.array([row.propensity for row in estimate_propensities(impressions).figures])
            for name, theta in estimates.items():
                errors[name].append(float(np.abs(np.log(np.maximum(theta, 1e-3) / planted)).mean()))
        rows.append({"impressions": size, "wrong": wrong, **{name: fmean(values) for name, values in errors.items()}})
    return rows


# Labels


def matched(judgements: Sequence[Judgement], truth: Truth, is_label: Callable[[Judgement], bool]) -> dict[str, Any]:
    """Precision, recall over the relevant passages that were shown, and hard negatives that are relevant."""

    def relevant(part: Iterable[Judgement]) -> int:
        return sum(judgement.passage in truth[judgement.question] for judgement in part)

    labels = [judgement for judgement in judgements if is_label(judgement)]
    negatives = [judgement for judgement in judgements if judgement.verdict == "not relevant"]
    shown, right = relevant(judgements), relevant(labels)
    return {
        "labels": len(labels),
        "precision": right / len(labels) if labels else 0.0,
        "recall": right / shown if shown else 0.0,
        "f1": 2 * right / (len(labels) + shown) if labels or shown else 0.0,
        "hard_negatives": len(negatives),
        "wrong_negatives": relevant(negatives),
    }


def is_relevant(judgement: Judgement) -> bool:
    return judgement.verdict == "relevant"


def is_clicked(judgement: Judgement) -> bool:
    return judgement.clicks > 0


class Way(NamedTuple):
    """A way to make labels from clicks: judgements by split, and which of them are labels."""

    judgements: dict[str, list[Judgement]]
    is_label: Callable[[Judgement], bool]

    def labels(self) -> dict[str, list[Judgement]]:
        """Labels of train and dev."""
        return {split: [*filter(self.is_label, self.judgements[split])] for split in ("train", "dev")}


def ways_of(log: Log, bias: Propensities) -> dict[str, Way]:
    """The ways that are compared."""
    corrected, plain = log.judgements(bias), log.judgements(Propensities(()))
    return {RAW: Way(corrected, is_clicked), PLAIN: Way(plain, is_relevant), IMPORTED: Way(corrected, is_relevant)}


def rates_of(log: Log, bias: Propensities) -> dict[str, Any]:
    """Planted and estimated click rates of passages that are no answer."""
    planted = {"wrong_attraction": log.truth.wrong_attraction, "clicks": log.truth.wrong_clicks}
    planted["share"] = log.truth.wrong_clicks / log.truth.clicks
    return {"planted": planted, "estimated": log.votes(bias)[1].as_json()}


def choose(logs: Mapping[float, Log], truth: Mapping[str, Truth]) -> list[dict[str, Any]]:
    """Mean F1 of labels of dev's questions over the shares of wrong clicks, by thresholds, best first."""
    rows = []
    counted = {wrong: log.votes(estimate_propensities(log.by_split["train"])) for wrong, log in logs.items()}
    for values in product(*GRID.values()):
        chosen = dict(zip(GRID, values, strict=True))
        settings = FeedbackSettings.parse(chosen)
        f1s = [
            matched(judge(votes["dev"], rates, settings), truth["dev"], is_relevant)["f1"]
            for votes, rates in counted.values()
        ]
        rows.append({**chosen, "f1": fmean(f1s)})
    return sorted(rows, key=lambda row: -row["f1"])


# Training


class Trainer:
    """Trains the default GNN-encoder on labels, over features that all share."""

    def __init__(self, dataset: Dataset, work: Path) -> None:
        self.place, self.dataset = work / "labelled", dataset
        self.place.mkdir(parents=True, exist_ok=True)
        for name in ("corpus.jsonl", "queries.jsonl"):
            shutil.copyfile(dataset.path / name, self.place / name)
        encoder = EncoderSettings(max_tokens=128, precision="float32")  # as in the recipe, and alike on any processor
        self.features: Features = encode_dataset(dataset, encoder, work / "features", overwrite=True)
        self.ids: dict[str, list[str]] = {}
        for query in dataset.queries():
            self.ids.setdefault(question_key(query.text), []).append(query.id)

    def values(self, name: str, labels: Mapping[str, Sequence[Judgement]] | None) -> dict[str, Any]:
        """RR@10 by test question, and what training kept. ``labels``: of train and dev; None: the true ones."""
        folder = "qrels-" + name.replace(" ", "-").replace("%", "")
        for split in SPLITS:
            true = self.dataset.split(split)
            rows = [Qrel(query, passage, grade) for query, grades in true.items() for passage, grade in grades.items()]
            if labels is not None and split != "test":
                rows = [
                    Qrel(id_, label.passage, 1)
                    for label in labels[split]
                    for id_ in self.ids[label.question]
                    if id_ in true
                ]
            write_qrels(self.place / folder / f"{split}.tsv", rows)
        return self._trained(Dataset.open(self.place, folder), self.features, self.place.with_name(folder))

    def imported(self, log: Log) -> dict[str, Any]:
        """The same by the dataset that ``feedback import`` makes, whose clicks say how a dev question counts."""
        work = self.place.with_name(f"import-{log.file.stem}")
        dev, test = map(datetime.fromisoformat, (log.truth.dev_from, log.truth.test_from))
        settings = FeedbackSettings()
        imported = import_feedback(
            [log.file], self.dataset.path, work / "dataset", settings, dev_from=dev, test_from=test, overwrite=True
        )
        dataset = Dataset.open(imported.path)
        features = encode_dataset(dataset, KnownVectors([self.features]), work / "features", overwrite=True)
        return self._trained(dataset, features, work)

    def _trained(self, dataset: Dataset, features: Features, work: Path) -> dict[str, Any]:
        common: dict[str, Any] = {"overwrite": True}
        graph = build_graph(dataset, features, GraphSettings(), work / "graph", **common)
        model = train_gnn(graph, dataset, features, TrainSettings(), work / "model", **common)
        embeddings = embed_passages(model, graph, work / "embeddings", **common)
        index = build_index(embeddings, work / "index", **common)
        return {"kept": model.meta["dev"].get("kept"), "values": self.measured(index)}

    def measured(self, index: Any) -> dict[str, float]:
        """RR@10 by test question, against the true labels."""
        qrels = self.dataset.split("test")
        vectors = self.features.queries[self.features.rows_of(list(qrels))]
        return dict(per_query(qrels, index_run(index, list(qrels), vectors, 10), [MEASURE])[MEASURE])


def trained_on(trainer: Trainer, log: Log, ways: Mapping[str, Way], wrong: str) -> dict[str, Any]:
    """RR@10 of the GNN-encoder by way of labelling, each tested against the one before."""
    trained = {name: trainer.values(f"{name} {wrong}", ways[name].labels()) for name in (RAW, IMPORTED)}
    trained[WEIGHTED] = trainer.imported(log)
    results: dict[str, Any] = {
        name: {MEASURE: fmean(training["values"].values()), "kept": training["kept"]}
        for name, training in trained.items()
    }
    for name, before in ((IMPORTED, RAW), (WEIGHTED, IMPORTED)):
        test = paired_test(trained[name]["values"], trained[before]["values"])
        results[name]["test"] = {"difference": test.difference, "p": test.p}
    return results


@click.command()
@click.option("--work", type=click.Path(path_type=Path), required=True, help="For features, graphs and models.")
@click.option("--impressions", default=10_000, show_default=True, help="Of the logs that labels are made from.")
@click.option("--choose", "only_choose", is_flag=True, help="Print the thresholds by their F1 on dev, and stop.")
def main(work: Path, impressions: int, only_choose: bool) -> None:
    """Measure, and write the page."""
    dataset = Dataset.open(make_docstring_corpus(work / "docstrings").path)
    simulator = Simulator(dataset, work)
    truth = simulator.truth
    logs = {wrong: simulator.log(impressions=impressions, wrong_clicks=wrong, seed=100) for wrong in WRONG}
    table = choose(logs, truth)
    if only_choose:
        for row in table[:10]:
            print(json.dumps(row))
        return
    chosen = {name: getattr(FeedbackSettings(), name) for name in GRID}
    if any(table[0][name] != value for name, value in chosen.items()):
        say(f"dev would choose {table[0]}, and the defaults are {chosen}")
    results: dict[str, Any] = {
        "impressions": impressions,
        "chosen": chosen,
        "on_dev": table,
        "propensities": propensity_errors(simulator),
        "rates": {},
        "labels": {},
        "training": {},
        "one_log_a_row": True,
        "dataset": dataset.provenance(),
    }
    trainer = Trainer(dataset, work)
    true = trainer.values(TRUE, None)
    results["true"] = {MEASURE: fmean(true["values"].values()), "kept": true["kept"]}
    plain = build_index(trainer.features, work / "index-dual-encoder", overwrite=True)
    results["dual-encoder"] = fmean(trainer.measured(plain).values())
    for wrong, log in logs.items():
        bias = estimate_propensities(log.by_split["train"])
        ways = ways_of(log, bias)
        results["rates"][str(wrong)] = rates_of(log, bias)
        results["labels"][str(wrong)] = {
            name: {split: matched(way.judgements[split], truth[split], way.is_label) for split in SPLITS}
            for name, way in ways.items()
        }
        results["training"][str(wrong)] = trained_on(trainer, log, ways, f"{wrong:.0%}")
    results |= {"git_revision": git_revision(), "versions": library_versions()}
    write_json(RESULTS / "feedback_import.json", results)
    (RESULTS / "feedback_import.md").write_text(markdown(json.loads(json.dumps(results))), encoding="utf-8")


if __name__ == "__main__":
    show_progress()
    main()
