"""Late interaction (ColBERT) and adaptive retrieval beside the GNN-encoder.

    .venv/bin/python benchmarks/late_interaction.py --work WORK

The sets are the docstring corpora and, with --data DIRECTORY that holds squad-open in the BEIR layout, a sample of
its questions and passages. Late interaction, COIL and ME-BERT are trained by the settings of ``encoder train colbert
--small`` and so on; --quick takes a small sample of every set, shorter passages and no hard negatives, and the page
says so. The GNN-encoder is over frozen MiniLM with its defaults. It is the first stage of MaxSim and of adaptive
retrieval, which score the same number of passages. Everything is trained on the same labels; the tables are of test.
Every training is kept in WORK; after an interruption, the same command continues. Writes results/late_interaction.json
and .md; with --only, the other sets stay there.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import click
import numpy as np
from numpy.typing import NDArray
from same_labels import mean_by_question, tested
from same_labels_page import difference

from gnnretrieval.data import Dataset, make_docstring_corpus
from gnnretrieval.data.runs.trec import Run, rank_rows
from gnnretrieval.data.text_store import TextStore
from gnnretrieval.encoders.bm25 import BM25
from gnnretrieval.encoders.encoded_texts import TEXTS
from gnnretrieval.encoders.features import Features, encode_dataset
from gnnretrieval.encoders.maxsim import maxsim_top_k, restored, stored
from gnnretrieval.encoders.opening import encoder_of
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.token_index import TokenIndex
from gnnretrieval.evaluation import per_query
from gnnretrieval.graph.build import build_graph
from gnnretrieval.graph.settings import GraphSettings
from gnnretrieval.graph.store import Graph
from gnnretrieval.index import Index, build_index
from gnnretrieval.index.hybrid import Ranker, RankingSettings
from gnnretrieval.index.late_search import late_run
from gnnretrieval.index.search import bm25_run, index_run
from gnnretrieval.mining import mine_negatives
from gnnretrieval.platform.memory import keep_freed_memory
from gnnretrieval.progress import say, show_progress
from gnnretrieval.recipes.encoder_recipe import read_encoder_recipe
from gnnretrieval.recipes.recipe import DOCSTRINGS
from gnnretrieval.storage.artifacts import Artifact
from gnnretrieval.storage.provenance import git_revision, library_versions, write_json
from gnnretrieval.training import TrainSettings, embed_passages, train_gnn
from gnnretrieval.training.encoder.train_encoder import train_dual_encoder

RESULTS = Path(__file__).resolve().parent / "results"
SQUAD = "squad-open"
SAMPLE = {"train": 4000, "dev": 500, "test": 1000}  # questions of the sample of squad-open
PASSAGES = 5000  # its passages: those of these questions, and others up to this number
SMALL_SAMPLE = {"train": 400, "dev": 80, "test": 200}  # with --quick
SMALL_PASSAGES = 600
QUICK = {"hard_negatives": 0, "dev_queries": 80, "dev_passages": 200}
QUICK_TOKENS = 96
RR, RECALL, DEPTH, BUDGET, TIMED = "RR@10", "R@100", 100, 100, 30
BM25_SYSTEM, DUAL, GNN, LATE, INT8 = "bm25", "dual-encoder", "gnn-encoder", "late interaction", "late interaction, int8"
COIL, MULTI = "COIL", "ME-BERT"
RERANKED, BY_GAR, BY_LADR = "gnn-encoder, MaxSim", "gnn-encoder, GAR, MaxSim", "gnn-encoder, LADR, MaxSim"
POOLED = "gnn-encoder over pooled tokens"
ADAPTIVE: dict[str, Any] = {RERANKED: None, BY_GAR: "gar", BY_LADR: "ladr"}
STRONGEST = (GNN, LATE)  # systems that saw the same labels, of which the better is compared with the others

Values = dict[str, dict[str, float]]  # by measure and question


class OneSet(NamedTuple):
    """A dataset, and where what is made of it goes."""

    name: str
    place: Path
    dataset: Dataset
    quick: bool

    @classmethod
    def of(cls, source: str, data: Path | None, work: Path, quick: bool) -> OneSet:
        """Make the set under ``work``, or reuse what is there."""
        name, where = f"{source}-quick" if quick else source, whole_set(source, data, work)
        if quick or source not in DOCSTRINGS:
            whole, where = where, work / "datasets" / name
            if not (where / "corpus.jsonl").is_file():
                sample(whole, where, *((SMALL_SAMPLE, SMALL_PASSAGES) if quick else (SAMPLE, PASSAGES)))
        return cls(name, work / name, Dataset.open(where), quick)

    @property
    def texts(self) -> dict[str, str]:
        """Test questions by id."""
        return {query.id: query.text for query in self.dataset.queries_of("test")}

    def frozen(self) -> tuple[Features, Graph, Index]:
        """Features by frozen MiniLM, their graph, and the dual-encoder's index."""
        tokens = 128 if self.name in DOCSTRINGS else None  # as in the recipes
        encoder = EncoderSettings(max_tokens=QUICK_TOKENS if self.quick else tokens)
        features = encode_dataset(self.dataset, encoder, self.place / "features", overwrite=True)
        graph = build_graph(self.dataset, features, GraphSettings(), self.place / "graph", overwrite=True)
        return features, graph, build_index(features, self.place / "index-dual-encoder", overwrite=True)

    def gnn(self, features: Features, graph: Graph, name: str, seed: int) -> Index:
        """Index of a GNN-encoder trained from this seed."""
        settings = TrainSettings.parse({"seed": seed})
        common: dict[str, Any] = {"overwrite": True}
        model = train_gnn(graph, self.dataset, features, settings, self.place / f"model-{name}{seed}", **common)
        embeddings = embed_passages(model, graph, self.place / f"embeddings-{name}{seed}", **common)
        return build_index(embeddings, self.place / f"index-{name}{seed}", **common)

    def trained(self, name: str, seed: int) -> Artifact:
        """The encoder of recipe ``name``, colbert or coil, trained from this seed."""
        recipe = read_encoder_recipe(name)
        negatives, stage = recipe.stages
        common: dict[str, Any] = {"overwrite": True}
        settings = recipe.settings_of(stage, True, seed=seed, **(QUICK if self.quick else {}))
        encoder = recipe.encoder_settings(True)
        if self.quick:
            encoder = encoder.model_copy(update={"max_tokens": QUICK_TOKENS})
        mined = recipe.settings_of(negatives, True)
        examples = mine_negatives(self.dataset, mined, self.place / negatives.name, features=None, **common)
        return train_dual_encoder(self.dataset, [examples], encoder, settings, self.place / f"{name}-{seed}", **common)

    def late(self, name: str, seed: int) -> Features:
        """Features by :meth:`trained`."""
        settings = EncoderSettings(checkpoint=str(self.trained(name, seed).path))
        return encode_dataset(self.dataset, settings, self.place / f"{name}-features-{seed}", overwrite=True)

    def measured(self, run: Run) -> Values:
        """RR@10 and R@100 on test, by question."""
        return {name: dict(values) for name, values in per_query(self.dataset.split("test"), run, [RR, RECALL]).items()}


def whole_set(source: str, data: Path | None, work: Path) -> Path:
    """The directory of a set, of which samples are taken. A docstring corpus is made, or reused if it is there."""
    if source in DOCSTRINGS:
        return make_docstring_corpus(work / "datasets" / source, DOCSTRINGS[source], overwrite=True).path
    if data is None:
        raise click.UsageError(f"{source} is a sample of files that you have: give their directory with --data.")
    return data / source


def sample(source: Path, place: Path, sizes: Mapping[str, int], most: int, unlabelled: int = 0) -> None:
    """Write a dataset with a sample of the questions of each split, and of the passages.

    ``unlabelled`` more training questions come without their labels; the rest of the sample stays as it is.
    """
    (place / "qrels").mkdir(parents=True, exist_ok=True)
    kept, relevant = set[str](), set[str]()
    for split, size in sizes.items():
        head, *lines = (source / "qrels" / f"{split}.tsv").read_text("utf-8").splitlines()
        ids = sorted({line.split("\t")[0] for line in lines})
        chosen = set(random.Random(0).sample(ids, min(size, len(ids))))
        kept |= chosen
        if split == "train":
            rest = [id_ for id_ in ids if id_ not in chosen]
            kept |= set(random.Random(2).sample(rest, min(unlabelled, len(rest))))
        relevant |= {line.split("\t")[1] for line in lines if line.split("\t")[0] in chosen}
        sampled = [line for line in lines if line.split("\t")[0] in chosen]
        (place / "qrels" / f"{split}.tsv").write_text("\n".join([head, *sampled]) + "\n", "utf-8")
    queries = (source / "queries.jsonl").read_text("utf-8").splitlines()
    sampled = [line for line in queries if json.loads(line)["_id"] in kept]
    (place / "queries.jsonl").write_text("\n".join(sampled) + "\n", "utf-8")
    passages = {json.loads(line)["_id"]: line for line in (source / "corpus.jsonl").read_text("utf-8").splitlines()}
    others = sorted(passages.keys() - relevant)
    relevant |= set(random.Random(1).sample(others, min(len(others), max(0, most - len(relevant)))))
    sampled = [line for id_, line in passages.items() if id_ in relevant]
    (place / "corpus.jsonl").write_text("\n".join(sampled) + "\n", "utf-8")  # last: it says that all is there


def figures_of(one_set: OneSet, seeds: int) -> dict[str, Any]:
    """Values by system and seed, and the cost of each system."""
    texts = one_set.texts
    features, graph, dual = one_set.frozen()
    vectors = features.queries[features.rows_of(texts)]
    bm25 = BM25((passage.full_text for passage in one_set.dataset.passages()), total=len(one_set.dataset.passage_ids))
    by_bm25 = one_set.measured(bm25_run(bm25, texts, one_set.dataset.passage_ids, DEPTH))
    by_dual = one_set.measured(index_run(dual, list(texts), vectors, DEPTH))
    values: dict[str, list[Values]] = {BM25_SYSTEM: [by_bm25], DUAL: [by_dual]}
    costs: dict[str, dict[str, float]] = {}
    passages = len(one_set.dataset.passage_ids)
    for seed in range(seeds):
        index = one_set.gnn(features, graph, "", seed)
        runs: dict[str, Run] = {GNN: index_run(index, list(texts), vectors, DEPTH)}
        late, coil, multi = (one_set.late(name, seed) for name in ("colbert", "coil", "me-bert"))
        runs |= {LATE: late_run(late, list(texts), DEPTH), INT8: _int8_run(late, list(texts))}
        runs |= {name: late_run(encoded, list(texts), DEPTH) for name, encoded in ((COIL, coil), (MULTI, multi))}
        rankers = {
            name: Ranker(
                index,
                RankingSettings(rerank=str(late.path), rerank_depth=BUDGET, adaptive=how),
                graph=None if how is None else graph,
            )
            for name, how in ADAPTIVE.items()
        }
        runs |= {name: ranker.run(texts, vectors, DEPTH) for name, ranker in rankers.items()}
        place = one_set.place / f"graph-late-{seed}"
        graph_of_late = build_graph(one_set.dataset, late, GraphSettings(), place, overwrite=True)
        over = one_set.gnn(late, graph_of_late, "late-", seed)
        runs[POOLED] = index_run(over, list(texts), late.queries[late.rows_of(texts)], DEPTH)
        for name, run in runs.items():
            values.setdefault(name, []).append(one_set.measured(run))
            say(f"{one_set.name}, seed {seed}, {name}: {100 * fmean(values[name][-1][RR].values()):.1f}")
        if seed == 0:
            costs = _costs(dual, index, features, late, multi, rankers, texts, passages)
            costs[COIL] = _cost_of_coil(coil, texts)
            costs[POOLED] = {"bytes": over.meta["bytes"] / passages}
    return {
        "passages": passages,
        "questions": len(texts),
        "tokens": late.meta["num_passage_tokens"] / passages,
        "labels": len(one_set.dataset.split("train")),
        "rows": rows_of(values, costs),
    }


def _int8(late: Features) -> NDArray[np.generic]:
    """The token vectors as ``token_storage = int8`` has them, without encoding again."""
    return stored(restored(late.tokens).numpy(), "int8")


def _int8_run(late: Features, query_ids: list[str]) -> Run:
    queries, starts = late.query_tokens[late.rows_of(query_ids)], np.asarray(late.token_starts)
    with TextStore(late.path / TEXTS) as texts:
        passage_ids = texts.passage_ids()
    rows_and_scores = maxsim_top_k(queries, _int8(late), starts, min(DEPTH, len(passage_ids)))
    return dict(zip(query_ids, rank_rows(*rows_and_scores, passage_ids), strict=True))


def _costs(
    dual: Index,
    index: Index,
    features: Features,
    late: Features,
    multi: Features,
    rankers: Mapping[str, Ranker],
    texts: Mapping[str, str],
    passages: int,
) -> dict[str, dict[str, float]]:
    """Bytes of vectors a passage, and milliseconds a question: one at a time, from text to ranking."""
    timed = list(texts.items())[:TIMED]
    encoder = encoder_of(features.meta, features.path)

    def by_index(opened: Index) -> Callable[[str, str], Any]:
        return lambda id_, text: opened.search(encoder.encode([text], "query"), DEPTH)

    def by_late(encoded: Features, tokens: Any) -> Callable[[str, str], Any]:
        of_late, starts = encoder_of(encoded.meta, encoded.path), np.asarray(encoded.token_starts)

        def search(id_: str, text: str) -> Any:
            query = of_late.encode_tokens([text], "query").vectors  # type: ignore[attr-defined]
            return maxsim_top_k(query[None], tokens, starts, min(DEPTH, passages))

        return search

    def by_ranker(ranker: Ranker) -> Callable[[str, str], Any]:
        return lambda id_, text: ranker.run({id_: text}, encoder.encode([text], "query"), DEPTH)

    of_index = index.meta["bytes"] / passages
    small = _int8(late)
    of_tokens = late.tokens.nbytes / passages
    searches: dict[str, tuple[Callable[[str, str], Any], float]] = {
        DUAL: (by_index(dual), dual.meta["bytes"] / passages),
        GNN: (by_index(index), of_index),
        LATE: (by_late(late, late.tokens), of_tokens),
        INT8: (by_late(late, small), small.nbytes / passages),
        MULTI: (by_late(multi, multi.tokens), multi.tokens.nbytes / passages),
        **{name: (by_ranker(ranker), of_index + of_tokens) for name, ranker in rankers.items()},
    }
    return {name: {"bytes": size, "ms": milliseconds(search, timed)} for name, (search, size) in searches.items()}


def _cost_of_coil(coil: Features, texts: Mapping[str, str]) -> dict[str, float]:
    """The same for COIL's inverted lists: vectors and ids of the tokens."""
    encoder, ids = encoder_of(coil.meta, coil.path), coil.token_ids
    index = TokenIndex(coil.tokens, ids, np.asarray(coil.token_starts))
    passages = coil.meta["num_passages"]

    def search(id_: str, text: str) -> Any:
        query = encoder.encode_tokens([text], "query")  # type: ignore[attr-defined]
        return index.top_k(query.vectors[None], query.ids[None], min(DEPTH, passages))

    size = (coil.tokens.nbytes + ids.nbytes) / passages
    return {"bytes": size, "ms": milliseconds(search, list(texts.items())[:TIMED])}


def milliseconds(search: Callable[[str, str], Any], questions: Sequence[tuple[str, str]]) -> float:
    """Median of a question."""
    search(*questions[0])  # opens what is opened on first use
    times = []
    for id_, text in questions:
        begun = time.perf_counter()
        search(id_, text)
        times.append(time.perf_counter() - begun)
    return 1000 * float(np.median(times))


def rows_of(values: Mapping[str, list[Values]], costs: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Means over seeds, and paired tests by question against the better of :data:`STRONGEST`, over means of seeds."""
    means = {name: mean_by_question([measures[RR] for measures in seeds]) for name, seeds in values.items()}
    reference = max(STRONGEST, key=lambda name: fmean(means[name].values()))
    rows = {}
    for name, seeds in values.items():
        by_seed = [100 * fmean(measures[RR].values()) for measures in seeds]
        row: dict[str, Any] = {
            "RR@10": fmean(by_seed),
            "deviation": stdev(by_seed) if len(by_seed) > 1 else None,
            "R@100": 100 * fmean(mean_by_question([measures[RECALL] for measures in seeds]).values()),
            "seeds": len(seeds),
            **costs.get(name, {}),
        }
        if name != reference:
            row["test"] = tested(means[name], means[reference])
        rows[name] = row
    return {"reference": reference, "systems": rows}


def markdown(results: Mapping[str, Any]) -> str:
    """The page."""
    how = "".join(f" --only {name}" for name in results["sets"])
    how += " --quick" if any(figures["quick"] for figures in results["sets"].values()) else ""
    lines = [
        "# Late interaction and adaptive retrieval",
        "",
        "Late interaction (ColBERT) has a vector of 128 numbers for every token, and scores a passage by MaxSim. It is",
        "trained by `encoder train colbert --small` from MiniLM. COIL has 32 numbers for every token, and compares it",
        "with the same token alone; ME-BERT has 8 vectors of 128 a passage, of which the best counts. Both are trained",
        "likewise. The GNN-encoder is over frozen MiniLM with its defaults; over pooled tokens, its features are the",
        "means of late interaction's vectors, of 128 numbers.",
        f"As the first stage of MaxSim, {BUDGET} passages are scored: its best, or those that GAR and LADR",
        "choose among its best and their neighbours (16, by shared training questions and by near vectors). All but",
        "bm25 and the dual-encoder see the same labels, unless a set's line says otherwise.",
        "",
        "RR@10 and R@100 × 100 on test, means over seeds. Δ is the difference in RR@10 from the row marked *, the",
        "better of the GNN-encoder and late interaction, with a 95 % bootstrap interval and the p of a paired t-test",
        "by question. Bytes are those of the vectors that a ranking reads, a passage. ms is the median time of a",
        "question, one at a time from its text to its ranking, on a machine that did other work too: read ratios.",
        "",
        f"`.venv/bin/python benchmarks/late_interaction.py --work WORK --data DIRECTORY{how}` makes this page.",
    ]
    for name, figures in results["sets"].items():
        lines += ["", f"## {name}", "", _about(figures), ""]
        lines += ["| system | RR@10 | R@100 | seeds | bytes | ms | Δ |", "|---|---:|---:|---:|---:|---:|---:|"]
        reference = figures["rows"]["reference"]
        for system, row in figures["rows"]["systems"].items():
            deviation = "" if row["deviation"] is None else f" ± {row['deviation']:.1f}"
            cost = [f"{row[key]:,.0f}" if key in row else "–" for key in ("bytes", "ms")]
            gain = difference(row["test"]) if "test" in row else "–"
            star = " *" if system == reference else ""
            lines.append(
                f"| {system}{star} | {row['RR@10']:.1f}{deviation} | {row['R@100']:.1f} | {row['seeds']} | {cost[0]} | "
                f"{cost[1]} | {gain} |"
            )
    lines += ["", f"Revision {results['git_revision']}."]
    return "\n".join(lines) + "\n"


def _about(figures: Mapping[str, Any]) -> str:
    quick = ""
    if figures["quick"]:
        quick = (
            f" With --quick: late interaction is trained for one epoch without hard negatives, and every encoder reads "
            f"{QUICK_TOKENS} tokens of a passage."
        )
    return (
        f"{figures['passages']:,} passages with {figures['tokens']:.0f} vectors of tokens each, {figures['labels']:,} "
        f"training and {figures['questions']:,} test questions.{quick}"
    )


@click.command()
@click.option("--data", type=click.Path(path_type=Path), help="Directory that holds squad-open.")
@click.option("--work", type=click.Path(path_type=Path), required=True, help="Where trainings are kept.")
@click.option("--only", multiple=True, help="Measure only this set; may be repeated.")
@click.option("--seeds", default=3, show_default=True, help="How many.")
@click.option("--quick", is_flag=True, help="Small samples, shorter passages, no hard negatives: some minutes.")
def main(data: Path | None, work: Path, only: tuple[str, ...], seeds: int, quick: bool) -> None:
    """Train, measure, and write the page."""
    keep_freed_memory()
    place = RESULTS / "late_interaction.json"
    for name in only or (*DOCSTRINGS, *((SQUAD,) if data else ())):
        figures = {"quick": quick, **figures_of(OneSet.of(name, data, work, quick), seeds)}
        sets = json.loads(place.read_text("utf-8"))["sets"] if place.is_file() else {}
        results: dict[str, Any] = {"sets": {**sets, name: figures}, "git_revision": git_revision()}
        results |= {"versions": library_versions(), "cpus": os.cpu_count()}
        write_json(place, results)
        (RESULTS / "late_interaction.md").write_text(markdown(results), encoding="utf-8")


if __name__ == "__main__":
    show_progress()
    main()
