"""Every encoder recipe but late interaction's on small samples of two sets, beside the GNN-encoder.

    .venv/bin/python benchmarks/small_encoders.py --data DIRECTORY --work WORK

The sets are samples of squad-open (DIRECTORY holds it in the BEIR layout) and of the docstring corpus, as
``late_interaction.py --quick`` makes them. Every recipe is run as ``encoder train RECIPE --small`` runs it, but with
shorter passages and less training of cross-encoders; the page says so. Everything is trained on the same labels; the
tables are of test. One seed of one set takes about 90 minutes of one thread. After an interruption, the same command
continues. Writes results/small_encoders.json and .md; with --only, the other set stays there. The rankings of dev and
test are kept in WORK, where reader.py finds them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import click
from late_interaction import (
    DEPTH,
    QUICK_TOKENS,
    RECALL,
    RESULTS,
    RR,
    SMALL_PASSAGES,
    SMALL_SAMPLE,
    SQUAD,
    TIMED,
    OneSet,
    Values,
    milliseconds,
    sample,
    whole_set,
)
from same_labels import mean_by_question, tested
from small_encoders_page import NAMES, markdown

from gnnretrieval.data import Dataset
from gnnretrieval.data.runs.trec import Run, write_run
from gnnretrieval.encoders.bm25 import BM25
from gnnretrieval.encoders.features import Features, open_features
from gnnretrieval.encoders.opening import encoder_of
from gnnretrieval.encoders.postings_search import PostingsSearch
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.sparse_encoder import SparseEncoder
from gnnretrieval.encoders.sparse_features import SparseFeatures, open_sparse_features
from gnnretrieval.evaluation import choose_fusion
from gnnretrieval.graph.build import build_graph
from gnnretrieval.graph.settings import GraphSettings
from gnnretrieval.index import Index, build_index
from gnnretrieval.index.fuse import fuse
from gnnretrieval.index.search import bm25_run, index_run
from gnnretrieval.index.sentence_search import features_run, sentence_run
from gnnretrieval.platform.memory import keep_freed_memory
from gnnretrieval.progress import say, show_progress
from gnnretrieval.recipes.encoder_recipe import METHODS
from gnnretrieval.recipes.run_encoder import run_encoder_recipe
from gnnretrieval.storage.provenance import git_revision, library_versions, write_json

SETS = (SQUAD, "docstrings")
SYSTEMS = {  # by recipe, the stages that are rows
    "dpr": ["dpr"],
    "rocketqav2": ["step-1", "rocketqav2"],
    "rocketqa": ["step-3", "step-4"],
    "pair": ["pair"],
    "dcsr": ["dcsr", "dcsr-adversarial"],
    "retromae": ["retromae"],
    "cocondenser": ["condenser", "cocondenser"],
    "term-weights": ["term-weights"],
    "splade-distilled": ["splade", "splade-distilled"],
}
UNLABELLED = {"rocketqa": 400, "pair": 400}  # training questions without labels that a recipe sees too
BM25_SYSTEM, DUAL, GNN = "bm25", "start", "gnn-encoder"
OVER = ("dpr", "step-4", "rocketqav2", "pair", "dcsr", "retromae", "cocondenser")  # a graph over each of these too
DENSE = (DUAL, "dpr", "step-1", "step-3", "step-4", "rocketqav2", "pair", "retromae", "condenser", "cocondenser")
SENTENCES = ("dcsr", "dcsr-adversarial")
SPARSE = ("splade", "splade-distilled", "term-weights")
JOINED = (*SPARSE, BM25_SYSTEM)  # joined with the GNN-encoder
PAIRS = {  # the row that a row is compared with
    **dict.fromkeys(("retromae", "condenser", "cocondenser", "pair", "dcsr"), "dpr"),
    "step-3": "step-1",
    "step-4": "step-3",
    "rocketqav2": "step-1",
    "dcsr-adversarial": "dcsr",
    "splade-distilled": "splade",
    **{f"{GNN}-over-{name}": name for name in OVER},
}
SPLITS = ("dev", "test")
JUDGE = {"epochs": 1, "negatives": 2, "dev_queries": 40}  # shorter training of a cross-encoder
JOINT = "epochs = 1, batch_size = 16, hard_negatives = 2"

Costs = dict[str, dict[str, float]]  # bytes of vectors a passage, and milliseconds a question


def recipe_of(name: str, seed: int, place: Path) -> Path:
    """The recipe, with a seed and the shorter training, as a file."""
    text = (METHODS / f"{name}.toml").read_text("utf-8")
    text = re.sub(r"(?s)(\[small\.encoder\].*?max_tokens = )\d+", rf"\g<1>{QUICK_TOKENS}", text)
    train: dict[str, Any] = {"dev_queries": 80, "dev_passages": 200}
    if name == "dcsr":
        train["without_answer"] = '"overlap"'
    seeded: dict[str, dict[str, Any]] = {"train": train, "pre_train": {}, "cross_encoder": JUDGE}
    for section, values in seeded.items():
        head, title, rest = text.partition(f"[small.{section}]\n")
        if title:
            body, bracket, after = rest.partition("\n[")
            kept = [line for line in body.split("\n") if line.split(" = ")[0] not in values]
            given = [f"{key} = {value}" for key, value in {**values, "seed": seed}.items()]
            text = "\n".join([head + title + "\n".join(given), *kept]) + bracket + after
    text = re.sub(r"small = \{ epochs = \d+, batch_size = \d+, hard_negatives = \d+", f"small = {{ {JOINT}", text)
    place.mkdir(parents=True, exist_ok=True)
    file = place / f"{name}.toml"
    file.write_text(text, encoding="utf-8")
    return file


def ranked(one_set: OneSet, seed: int, unlabelled: Mapping[str, Path]) -> tuple[dict[str, dict[str, Run]], Costs]:
    """Rankings of dev and test by every single system, which are kept as files; and what the systems cost."""
    features, graph, _ = one_set.frozen()
    indexes = {GNN: (one_set.gnn(features, graph, "", seed), features)}
    encoded: dict[str, Features | SparseFeatures] = {DUAL: features}
    for name, systems in SYSTEMS.items():
        place = one_set.place / f"{name}-run-{seed}"
        recipe, data = recipe_of(name, seed, place), unlabelled.get(name, one_set.dataset.path)
        if run_encoder_recipe(recipe, place / "made", data=data, small=True) is None:
            raise click.ClickException(f"{recipe}: the recipe was stopped.")
        for system in systems:
            made = place / "made" / f"{system}-features"
            if system in SPARSE:
                encoded[system] = open_sparse_features(made)
                continue
            encoded[system] = trained = open_features(made)
            if system in OVER:
                indexes[f"{GNN}-over-{system}"] = (over(one_set, Dataset.open(data), trained, system, seed), trained)
    bm25 = BM25((passage.full_text for passage in one_set.dataset.passages()), total=len(one_set.dataset.passage_ids))
    runs: dict[str, dict[str, Run]] = {}
    for split in SPLITS:
        queries = {query.id: query.text for query in one_set.dataset.queries_of(split)}
        runs[split] = {name: features_run(of, list(queries), DEPTH) for name, of in encoded.items()} | {
            BM25_SYSTEM: bm25_run(bm25, queries, one_set.dataset.passage_ids, DEPTH),
        }
        runs[split] |= {
            name: index_run(index, list(queries), of.queries[of.rows_of(queries)], DEPTH)
            for name, (index, of) in indexes.items()
        }
        kept = one_set.place / f"rankings-{seed}" / split
        kept.mkdir(parents=True, exist_ok=True)
        for name, run in runs[split].items():
            write_run(kept / f"{name}.run", run, name, may_be_empty=True)
    return runs, costs_of(one_set, encoded) if seed == 0 else {}


def over(one_set: OneSet, dataset: Dataset, features: Features, name: str, seed: int) -> Index:
    """Index of a GNN-encoder over a trained encoder's vectors; of several vectors a passage, over their mean."""
    place = one_set.place / f"graph-{name}-{seed}"
    graph = build_graph(dataset, features, GraphSettings(), place, overwrite=True)
    return one_set._replace(dataset=dataset).gnn(features, graph, f"{name}-", seed)


def kept_over(one_set: OneSet, name: str, seed: int) -> str:
    """What training kept over a trained encoder."""
    model = one_set.place / f"model-{name}-{seed}"
    return str(json.loads((model / "meta.json").read_text("utf-8"))["dev"]["kept"])


def costs_of(one_set: OneSet, encoded: Mapping[str, Features | SparseFeatures]) -> Costs:
    """Bytes of vectors a passage, and milliseconds a question: one at a time, from text to ranking.

    Encoders of one vector a text have the same size, and so has the GNN-encoder: one of them is timed.
    """
    passages, timed = len(one_set.dataset.passage_ids), list(one_set.texts.items())[:TIMED]
    bm25 = BM25((passage.full_text for passage in one_set.dataset.passages()), total=passages)
    ids = one_set.dataset.passage_ids
    costs: Costs = {BM25_SYSTEM: {"ms": milliseconds(lambda id_, text: bm25_run(bm25, {id_: text}, ids, DEPTH), timed)}}
    for name in (DUAL, *SENTENCES):
        features = encoded[name]
        assert isinstance(features, Features)
        by_sentence = name in SENTENCES
        index = build_index(features, one_set.place / f"index-{name}", sentences=by_sentence, overwrite=True)
        encoder = encoder_of(features.meta, features.path)
        rank = sentence_run if by_sentence else index_run

        def search(id_: str, text: str, rank: Any = rank, index: Any = index, encoder: Any = encoder) -> Any:
            return rank(index, [id_], encoder.encode([text], "query"), DEPTH)

        costs[name] = {"bytes": index.meta["bytes"] / passages, "ms": milliseconds(search, timed)}
    costs |= dict.fromkeys((*DENSE, GNN, *(f"{GNN}-over-{name}" for name in OVER)), costs[DUAL])
    for name in SPARSE:
        features = encoded[name]
        sparse = SparseEncoder(EncoderSettings.parse(features.meta["encoder"], features.path))
        assert isinstance(features, SparseFeatures)
        postings = PostingsSearch(features.postings, passages)

        def by_terms(id_: str, text: str, sparse: Any = sparse, postings: Any = postings) -> Any:
            query = sparse.encode([text], "query")
            return postings.top_k(query.terms.tolist(), DEPTH, query.weights)

        size = 8 * features.meta["num_passage_terms"] / passages
        costs[name] = {"bytes": size, "ms": milliseconds(by_terms, timed)}
    for name in JOINED:  # both rankings, one after the other
        both = (costs[GNN], costs[name])
        costs[f"{GNN} + {name}"] = {
            key: sum(cost[key] for cost in both) for key in ("bytes", "ms") if key in costs[name]
        }
    return costs


def figures_of(one_set: OneSet, seeds: int, unlabelled: Mapping[str, Path]) -> dict[str, Any]:
    """Values by system and seed, tests, and costs."""
    values: dict[str, list[Values]] = {}
    chosen: dict[str, list[tuple[float, ...]]] = {}
    costs: Costs = {}
    for seed in range(seeds):
        runs, of_seed = ranked(one_set, seed, unlabelled)
        costs |= of_seed
        for name in JOINED:
            of_dev, of_test = ([runs[split][GNN], runs[split][name]] for split in SPLITS)
            fusion = choose_fusion(of_dev, one_set.dataset.split("dev"))
            runs["test"][f"{GNN} + {name}"] = fuse(of_test, "weighted", weights=fusion.weights)
            chosen.setdefault(name, []).append(fusion.weights)
        for name, run in runs["test"].items():
            values.setdefault(name, []).append(one_set.measured(run))
    means = {name: mean_by_question([measures[RR] for measures in every]) for name, every in values.items()}
    return {
        "passages": len(one_set.dataset.passage_ids),
        "questions": len(one_set.texts),
        "labels": len(one_set.dataset.split("train")),
        "seeds": seeds,
        "unlabelled": max(UNLABELLED.values()),
        "weights": chosen,
        "kept": {f"{GNN}-over-{name}": [kept_over(one_set, name, seed) for seed in range(seeds)] for name in OVER},
        "systems": {name: row_of(name, values[name], means, costs) for name in NAMES},
        "pairs": {name: {"than": other, **tested(means[name], means[other])} for name, other in PAIRS.items()},
    }


def row_of(name: str, seeds: Sequence[Values], means: Mapping[str, dict[str, float]], costs: Costs) -> dict[str, Any]:
    """A system's means over seeds, its costs, and its test against the GNN-encoder."""
    by_seed = [100 * fmean(measures[RR].values()) for measures in seeds]
    row: dict[str, Any] = {
        RR: fmean(by_seed),
        "deviation": stdev(by_seed) if len(set(by_seed)) > 1 else None,
        RECALL: 100 * fmean(mean_by_question([measures[RECALL] for measures in seeds]).values()),
        **costs[name],
    }
    if name != GNN:
        row["test"] = tested(means[name], means[GNN])
    return row


@click.command()
@click.option("--data", type=click.Path(path_type=Path), help="Directory that holds squad-open.")
@click.option("--work", type=click.Path(path_type=Path), required=True, help="Where trainings are kept.")
@click.option("--only", multiple=True, type=click.Choice(SETS), help="Measure only this set; may be repeated.")
@click.option("--seeds", default=3, show_default=True, help="How many.")
def main(data: Path | None, work: Path, only: tuple[str, ...], seeds: int) -> None:
    """Train, measure, and write the page."""
    keep_freed_memory()
    place = RESULTS / "small_encoders.json"
    for name in only or SETS:
        one_set = OneSet.of(name, data, work, True)
        unlabelled = {}
        for recipe, questions in UNLABELLED.items():
            unlabelled[recipe] = work / "datasets" / f"{one_set.name}-{questions}-unlabelled"
            if not (unlabelled[recipe] / "corpus.jsonl").is_file():
                sample(whole_set(name, data, work), unlabelled[recipe], SMALL_SAMPLE, SMALL_PASSAGES, questions)
        figures = figures_of(one_set, seeds, unlabelled)
        sets = json.loads(place.read_text("utf-8"))["sets"] if place.is_file() else {}
        results: dict[str, Any] = {"sets": {**sets, name: {**figures, "git_revision": git_revision()}}}
        results |= {"versions": library_versions(), "cpus": os.cpu_count()}
        write_json(place, results)
        (RESULTS / "small_encoders.md").write_text(markdown(json.loads(json.dumps(results))), encoding="utf-8")
        say(f"{name}: {place}")


if __name__ == "__main__":
    show_progress()
    main()
