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
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize

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
from gnnretrieval.feedback.propensities import Placed, Propensities, estimate_propensities, placed
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
SEEDS = 5  # logs by which estimates of propensities are compared
SIZES = (3_000, 10_000, 30_000)  # their impressions
MEASURE = "RR@10"
RAW, PLAIN, IMPORTED, TRUE = "raw clicks", "import without propensities", "feedback import", "true labels"
WEIGHTED = "with weighted dev questions"
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
        votes = {name: count_votes(its, bias) for name, its in self.by_split.items()}
        return votes, click_rates(votes["train"])


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
        self.rankings = {query: [one.passage_id for one in its] for query, its in run.items()}
        self.truth: dict[str, Truth] = {}
        for split in SPLITS:
            found: dict[str, set[str]] = {}
            for query, its in dataset.split(split).items():
                relevant = {passage for passage, value in its.items() if value > 0}
                found.setdefault(question_key(queries[query]), set()).update(relevant)
            self.truth[split] = {question: frozenset(passages) for question, passages in found.items()}

    def log(self, **settings: Any) -> Log:
        """Simulate, and read the log back as feedback import does."""
        parsed = SimulationSettings.parse(settings)
        file = self.place / f"log-{parsed.wrong_clicks:g}.jsonl"
        file.unlink(missing_ok=True)
        report = simulate_log(self.dataset, file, parsed, rankings=self.rankings)
        cleaned = clean(EventLog(file).events(), set(self.dataset.passage_ids), FeedbackSettings())
        by_split: dict[str, list[Impression]] = {name: [] for name in SPLITS}
        for one in cleaned.impressions:
            by_split[next(name for name in SPLITS if one.question in self.truth[name])].append(one)
        return Log(file, report, by_split)


# Estimates of propensities, all relative to the first position


def by_click_rate(entries: Placed, positions: int) -> NDArray[np.floating]:
    """Click rate of each position, as if all positions had equally good passages."""
    rate = np.bincount(entries.position, entries.clicked, positions) / np.bincount(
        entries.position, entries.shown, positions
    )
    return np.asarray(rate / rate[0])


def by_regression_em(entries: Placed, positions: int, steps: int = 300) -> NDArray[np.floating]:
    """Regression EM without features (Wang et al. 2018): EM of the position-based model, with Beta(0.3, 2) priors."""
    pair, position, n, c = entries
    theta, pairs = np.full(positions, 0.5), int(pair.max()) + 1
    gamma = np.full(pairs, 0.2)
    for _ in range(steps):
        neither = np.maximum(1 - theta[position] * gamma[pair], 1e-9)
        examined = theta[position] * (1 - gamma[pair]) / neither
        attracted = gamma[pair] * (1 - theta[position]) / neither
        theta = np.bincount(position, c + (n - c) * examined, positions) / np.bincount(position, n, positions)
        gamma = (np.bincount(pair, c + (n - c) * attracted, pairs) + 0.3) / (np.bincount(pair, n, pairs) + 2.3)
    return np.asarray(theta / theta[0])


def by_all_pairs(entries: Placed, positions: int) -> NDArray[np.floating]:
    """AllPairs (Agarwal et al. 2019, eq. 6): intervention harvesting with a click rate for each pair of positions."""
    pair, position, n, c = entries
    shape = (int(pair.max()) + 1, positions)
    both = sparse.csr_matrix((np.ones(len(pair)), (pair, position)), shape=shape)
    clicked, not_clicked = (
        (sparse.csr_matrix((rate, (pair, position)), shape=shape).T @ both).toarray() for rate in (c / n, 1 - c / n)
    )
    one, other = (part[~np.eye(positions, dtype=bool)] for part in np.indices((positions, positions)))
    place = np.minimum(one, other) * positions + np.maximum(one, other)

    def loss(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        p, r = 1 / (1 + np.exp(-x[:positions])), 1 / (1 + np.exp(-x[positions:]))
        chance = np.clip(p[one] * r[place], 1e-9, 1 - 1e-9)
        yes, no = clicked[one, other], not_clicked[one, other]
        slope = -(yes / chance - no / (1 - chance)) * chance
        gradient = np.concatenate(
            [
                np.bincount(one, slope * (1 - p[one]), positions),
                np.bincount(place, slope * (1 - r[place]), positions**2),
            ]
        )
        return -float((yes * np.log(chance) + no * np.log(1 - chance)).sum()), gradient

    start = np.concatenate([np.zeros(positions), np.full(positions**2, -1.0)])
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 3000, "maxfun": 5000})
    p = 1 / (1 + np.exp(-found.x[:positions]))
    return np.asarray(p / p[0])


ESTIMATES: dict[str, Callable[[Placed, int], NDArray[np.floating]]] = {
    "click rate": by_click_rate,
    "regression EM": by_regression_em,
    "AllPairs": by_all_pairs,
}


def propensity_errors(simulator: Simulator) -> list[dict[str, Any]]:
    """Mean absolute error of the logarithm of the propensities, by size of the log and estimate."""
    rows = []
    for size, wrong in product(SIZES, (0.1, 0.4)):
        errors: dict[str, list[float]] = {name: [] for name in (*ESTIMATES, IMPORTED)}
        for seed in range(SEEDS):
            log = simulator.log(impressions=size, wrong_clicks=wrong, seed=seed)
            its, planted = log.by_split["train"], np.array(log.truth.propensities)
            found = {name: estimate(placed(its), len(planted)) for name, estimate in ESTIMATES.items()}
            found[IMPORTED] = np.array([one.propensity for one in estimate_propensities(its).figures])
            for name, theta in found.items():
                errors[name].append(float(np.abs(np.log(np.maximum(theta, 1e-3) / planted)).mean()))
        rows.append({"impressions": size, "wrong": wrong, **{name: fmean(its) for name, its in errors.items()}})
    return rows


# Labels


def matched(judgements: Iterable[Judgement], truth: Truth, is_label: Callable[[Judgement], bool]) -> dict[str, Any]:
    """Precision, recall over the relevant passages that were shown, and hard negatives that are relevant."""
    its = list(judgements)
    labels = [one for one in its if is_label(one)]
    shown = sum(one.passage in truth[one.question] for one in its)
    right = sum(one.passage in truth[one.question] for one in labels)
    negatives = [one for one in its if one.verdict == "not relevant"]
    return {
        "labels": len(labels),
        "precision": right / len(labels) if labels else 0.0,
        "recall": right / shown if shown else 0.0,
        "f1": 2 * right / (len(labels) + shown) if labels or shown else 0.0,
        "hard_negatives": len(negatives),
        "wrong_negatives": sum(one.passage in truth[one.question] for one in negatives),
    }


def is_relevant(one: Judgement) -> bool:
    return one.verdict == "relevant"


def is_clicked(one: Judgement) -> bool:
    return one.clicks > 0


def choose(logs: Mapping[float, Log], truth: Mapping[str, Truth]) -> list[dict[str, Any]]:
    """Mean F1 of labels of dev's questions over the shares of wrong clicks, by thresholds, best first."""
    rows = []
    counted = {wrong: log.votes(estimate_propensities(log.by_split["train"])) for wrong, log in logs.items()}
    for values in product(*GRID.values()):
        chosen = dict(zip(GRID, values, strict=True))
        settings = FeedbackSettings.parse(chosen)
        found = [
            matched(judge(votes["dev"], rates, settings), truth["dev"], is_relevant)
            for votes, rates in counted.values()
        ]
        rows.append({**chosen, "f1": fmean(one["f1"] for one in found)})
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
            rows = [Qrel(query, passage, value) for query, its in true.items() for passage, value in its.items()]
            if labels is not None and split != "test":
                rows = [
                    Qrel(id_, one.passage, 1) for one in labels[split] for id_ in self.ids[one.question] if id_ in true
                ]
            write_qrels(self.place / folder / f"{split}.tsv", rows)
        return self._trained(Dataset.open(self.place, folder), self.features, self.place.with_name(folder))

    def imported(self, log: Log) -> dict[str, Any]:
        """The same by the dataset that ``feedback import`` makes, whose clicks say how a dev question counts."""
        work = self.place.with_name(f"import-{log.file.stem}")
        dev, test = map(datetime.fromisoformat, (log.truth.dev_from, log.truth.test_from))
        settings = FeedbackSettings()
        made = import_feedback(
            [log.file], self.dataset.path, work / "dataset", settings, dev_from=dev, test_from=test, overwrite=True
        )
        dataset = Dataset.open(made.path)
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


def difference(system: Mapping[str, float], baseline: Mapping[str, float]) -> dict[str, float]:
    """Mean difference, and p of the paired t-test."""
    test = paired_test(dict(system), dict(baseline))
    return {"difference": test.difference, "p": test.p}


def markdown(results: Mapping[str, Any]) -> str:
    """The page."""
    lines = [
        "# Labels from clicks",
        "",
        f"{results['impressions']:,} simulated lists of ten passages over the docstring corpus, ranked by BM25 with",
        "noise. Position k is examined with probability 1/k. Real users differ, and examine lists in other ways.",
        "`.venv/bin/python benchmarks/feedback_import.py --work WORK` makes this page.",
        "",
        "## Position bias",
        "",
        f"Mean absolute error of ln(propensity) against the planted ones, mean of {SEEDS} logs. `feedback import` uses",
        "the last column.",
        "",
    ]
    names = (*ESTIMATES, IMPORTED)
    lines += ["| impressions | wrong clicks | " + " | ".join(names) + " |", "|---:|---:|" + "---:|" * len(names)]
    for row in results["propensities"]:
        best = min(row[name] for name in names)
        cells = [f"**{row[name]:.3f}**" if row[name] == best else f"{row[name]:.3f}" for name in names]
        lines.append(f"| {row['impressions']:,} | {row['wrong']:.0%} | {' | '.join(cells)} |")
    lines += [
        "",
        "## Click rate of passages that are no answer",
        "",
        "Planted, and as the background that `feedback import` estimates from clicks alone.",
        "",
        "| wrong clicks | planted rate | estimated rate | estimated share of background clicks |",
        "|---:|---:|---:|---:|",
    ]
    for wrong, its in results["rates"].items():
        planted, found = its["planted"]["wrong_attraction"], its["estimated"]
        share = found["share_background_clicks"]
        lines.append(f"| {float(wrong):.0%} | {planted:.3f} | {found['background']:.3f} | {share:.1%} |")
    chosen = ", ".join(f"`{name}` {value:g}" for name, value in results["chosen"].items())
    lines += [
        "",
        "## Labels against the truth",
        "",
        f"Thresholds are chosen by the mean F1 of dev's labels ({chosen}). Recall is",
        "over the relevant passages that were shown. Raw clicks: whatever was clicked once.",
        "Without the correction of position bias, labels can be more precise here: the simulated search ranks relevant",
        "passages first, so position is evidence too. But far more of the hard negatives are relevant, since what",
        "nobody looked at counts as never clicked.",
        "",
        "| wrong clicks | labels by | train: labels | precision | recall | test: precision | recall | hard negatives |"
        " of them relevant |",
        "|---:|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for wrong, its in results["labels"].items():
        for name, found in its.items():
            train, test = found["train"], found["test"]
            negatives = ("", "") if name == RAW else (f"{train['hard_negatives']:,}", f"{train['wrong_negatives']:,}")
            shares = (train["precision"], train["recall"], test["precision"], test["recall"])
            percent = [f"{100 * share:.1f}" for share in shares]
            row_of = [f"{float(wrong):.0%}", name, f"{train['labels']:,}", *percent, *negatives]
            lines.append("| " + " | ".join(row_of) + " |")
    lines += [
        "",
        "## Training on them",
        "",
        "RR@10 × 100 on the true labels of test by the default GNN-encoder over frozen MiniLM, trained and chosen on",
        f"such labels of train and dev; one seed. Dual-encoder: {100 * results['dual-encoder']:.1f}. With the true",
        f"labels of all questions: {100 * results['true']['RR@10']:.1f}.",
        "",
        f"*{WEIGHTED}* also chooses by clicks: a dev question ranks what it was shown, and counts by the inverse of",
        "its chance of a label. Δ is the difference to the column before, and p that of a paired t-test.",
        "",
        f"| wrong clicks | {RAW} | {IMPORTED} | Δ (p) | {WEIGHTED} | Δ (p) |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for wrong, its in results["training"].items():
        cells = [f"{float(wrong):.0%}", f"{100 * its[RAW]['RR@10']:.1f}"]
        for name in (IMPORTED, WEIGHTED):
            test = its[name]["test"]
            cells += [f"{100 * its[name]['RR@10']:.1f}", f"{100 * test['difference']:+.1f} ({test['p']:.2g})"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"Revision {results['git_revision']}."]) + "\n"


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
        "dataset": dataset.provenance(),
    }
    trainer = Trainer(dataset, work)
    true = trainer.values(TRUE, None)
    results["true"] = {MEASURE: fmean(true["values"].values()), "kept": true["kept"]}
    plain = build_index(trainer.features, work / "index-dual-encoder", overwrite=True)
    results["dual-encoder"] = fmean(trainer.measured(plain).values())
    for wrong, log in logs.items():
        bias = estimate_propensities(log.by_split["train"])
        ways: dict[str, tuple[Propensities, Callable[[Judgement], bool]]] = {
            RAW: (bias, is_clicked),
            PLAIN: (Propensities(()), is_relevant),
            IMPORTED: (bias, is_relevant),
        }
        judged: dict[str, dict[str, list[Judgement]]] = {}
        for name, (theta, _) in ways.items():
            votes, rates = log.votes(theta)
            judged[name] = {split: judge(its, rates, FeedbackSettings()) for split, its in votes.items()}
            if name == IMPORTED:
                planted = {"wrong_attraction": log.truth.wrong_attraction, "clicks": log.truth.wrong_clicks}
                planted["share"] = log.truth.wrong_clicks / log.truth.clicks
                results["rates"][str(wrong)] = {"planted": planted, "estimated": rates.as_json()}
        results["labels"][str(wrong)] = {
            name: {split: matched(judged[name][split], truth[split], ways[name][1]) for split in SPLITS}
            for name in ways
        }
        trained = {
            name: trainer.values(
                f"{name} {wrong:.0%}",
                {split: [one for one in judged[name][split] if ways[name][1](one)] for split in ("train", "dev")},
            )
            for name in (RAW, IMPORTED)
        }
        trained[WEIGHTED] = trainer.imported(log)
        of_wrong: dict[str, Any] = {
            name: {MEASURE: fmean(its["values"].values()), "kept": its["kept"]} for name, its in trained.items()
        }
        for name, before in ((IMPORTED, RAW), (WEIGHTED, IMPORTED)):
            of_wrong[name]["test"] = difference(trained[name]["values"], trained[before]["values"])
        results["training"][str(wrong)] = of_wrong
    results |= {"git_revision": git_revision(), "versions": library_versions()}
    write_json(RESULTS / "feedback_import.json", results)
    (RESULTS / "feedback_import.md").write_text(markdown(json.loads(json.dumps(results))), encoding="utf-8")


if __name__ == "__main__":
    show_progress()
    main()
