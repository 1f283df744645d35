"""GNN-encoder over a fine-tuned dual-encoder: gains, the paper's ablations and sweeps, and each step beyond it.

    .venv/bin/python benchmarks/gnn_encoder.py --data DIRECTORY --work WORK

DIRECTORY holds squad-open and fairytaleqa in the BEIR layout; the script generates the docstring corpus. Sets, variants
and sweeps are in gnn_encoder.toml. The dual-encoder of every set is fine-tuned first, on a share of the questions of
its graph. If it does not take hours, another one is fine-tuned on all of them, for comparison. Epoch and context scale
are chosen on dev; tables are on test. Every training is kept in WORK; after an interruption, the same command
continues. Writes results/gnn_encoder-SET.json and .md, and a plot of each sweep.
"""

from __future__ import annotations

import json
import os
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from gnn_encoder_analysis import against, alike, domains, rows_of, rr_alike, spread, unrepeated
from gnn_encoder_page import DUAL, GNN, OVER_ALL, PLAN, markdown, sweep_plot
from result_files import without_texts
from sampling import hold_out, sample_dataset

from gnnretrieval.data import Dataset, make_docstring_corpus
from gnnretrieval.data.runs.trec import Run, read_run, write_run
from gnnretrieval.encoders.features import Features, encode_dataset
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.evaluation import compare, markdown_comparison, per_query
from gnnretrieval.graph.build import build_graph
from gnnretrieval.graph.inspection.inspect import inspect_graph
from gnnretrieval.graph.settings import GraphSettings
from gnnretrieval.graph.store import Graph
from gnnretrieval.index import build_index
from gnnretrieval.index.faiss_index import Index, open_index
from gnnretrieval.index.search import index_run
from gnnretrieval.index.sentence_search import features_run
from gnnretrieval.mining.examples import open_examples
from gnnretrieval.platform.memory import keep_freed_memory
from gnnretrieval.progress import show_progress
from gnnretrieval.recipes.run_encoder import run_encoder_recipe
from gnnretrieval.storage.provenance import git_revision, library_versions, write_json
from gnnretrieval.training import TrainSettings, embed_passages, train_gnn
from gnnretrieval.training.encoder.pair_data import in_share
from gnnretrieval.training.gnn.model import open_model

ROOT = Path(__file__).resolve().parent
RESULTS = ROOT / "results"
DUAL_RECIPE = ROOT / "gnn_encoder_dual.toml"
MEASURES = ("RR@10", "nDCG@10", "R@1", "R@5", "R@20", "R@100")
ALL_LABELS = "dual-encoder, all labels"
DEPTH = 100
DEEP = 1000  # depth of rankings from which only some passages are kept


class OneSet:
    """A set with its dual-encoders, and the GNN-encoders trained over them."""

    def __init__(self, name: str, data: Path, work: Path, variants: Sequence[str]) -> None:
        self.name, self.plan, self.place = name, PLAN["sets"][name], work / name
        like = self.plan.get("like", name)
        self.encoders = work / like / "encoder"
        self.dataset = Dataset.open(self._sampled(data, work / "datasets" / like, self.plan.get("questions")))
        self.query_share: float = tomllib.loads(DUAL_RECIPE.read_text(encoding="utf-8"))["train"]["query_share"]
        learned, self.dual, wanted = self.dataset, "dpr", ["dpr"]
        if of_all := self.plan.get("all_labels", "labelled" not in self.plan):
            wanted.append("dpr-all")
        if labelled := self.plan.get("labelled"):
            learned = Dataset.open(self._sampled(data, work / "datasets" / f"{like}-labelled", labelled))
            self.query_share = labelled / len(self.dataset.split("train"))
            self.dual, wanted = "dpr-all", ["dpr-all"]
        if any(PLAN["variants"].get(variant, {}).keys() & {"cross_encoder", "examples"} for variant in variants):
            wanted.append("denoised")
        recipe_run = run_encoder_recipe(DUAL_RECIPE, self.encoders, data=learned.path, only=wanted)
        assert recipe_run is not None
        if self.plan.get("held_out"):
            self.dataset = Dataset.open(hold_out(self.dataset.path, work / "datasets" / name, self._unlearned))
        self.features = self.encoded(self.encoders / self.dual, self.place / "features")
        self.features_all: Features | None = None
        if of_all:
            self.features_all = self.encoded(self.encoders / "dpr-all", self.place / "features-all")
        self.qrels = self.dataset.split("test")
        train = self.dataset.split("train").values()
        self.labelled = {passage for judged in train for passage, grade in judged.items() if grade > 0}

    def _sampled(self, data: Path, out: Path, questions: int | None) -> Path:
        if "source" not in self.plan:
            return make_docstring_corpus(
                out.parent.parent / "docstring-corpus", summaries="question", overwrite=True
            ).path
        options = {"domains": self.plan.get("domains", ()), "qrels": self.plan.get("qrels", "qrels")}
        return sample_dataset(data / self.plan["source"], out, questions=questions, dev=1000, **options)

    def _unlearned(self, record: dict[str, Any]) -> bool:
        """Whether another author wrote the question, and the dual-encoder did not learn from it."""
        kind: str = record["metadata"]["kind"]
        return kind == "see-also" and not in_share(record["_id"], self.query_share)

    def encoded(self, encoder: Path, out: Path) -> Features:
        """Features by a trained encoder."""
        settings = EncoderSettings(checkpoint=str(encoder))
        return encode_dataset(self.dataset, settings, out, overwrite=True)

    def queries_by(self, variant: dict[str, Any]) -> Features:
        """Features of a variant's dual-encoder."""
        features = self.features_all if variant.get("over_all_labels") else self.features
        assert features is not None
        return features

    def graph(self, variant: dict[str, Any], run: Path | None = None, place: Path | None = None) -> Graph:
        """The graph of a variant, at a path that names its settings."""
        own = dict(variant.get("graph", {}))
        changes = dict(own)
        name = "graph" + "".join(f"-{key}={_word(value)}" for key, value in own.items())
        if variant.get("cross_encoder"):
            changes["cross_encoder"] = str(self.encoders / "cross-encoder")
        if run is not None:
            changes["edges"] = "run"
        settings = GraphSettings.parse({"pair_tokens": 160, **changes})
        features, out = self.queries_by(variant), place or self.place / name
        if variant.get("over_all_labels"):
            out = self.place / f"{name}-all-labels"
        return build_graph(self.dataset, features, settings, out, run=run, overwrite=True)

    def measured(self, name: str, variant: dict[str, Any], seed: int) -> dict[str, Any]:
        """Train with one seed and rank test; a result that is kept from the same settings is read instead."""
        place = self.place / "variants" / name / str(seed)
        store = self.graph(variant)
        if variant.get("second_round"):
            run = place / "train.run"
            run.parent.mkdir(parents=True, exist_ok=True)
            first = self.place / "variants" / GNN / str(seed)
            write_run(run, self._ranked(open_index(first / "index"), self.features, "train"), GNN)
            store = self.graph(variant, run, place / "graph")
        settings = train_settings(self.plan, variant, seed)
        more: dict[str, Any] = {"overwrite": True}
        if variant.get("examples"):
            more["examples"] = [open_examples(self.encoders / "denoised")]
        queries_by = self.queries_by(variant)
        if settings.is_joint or settings.epochs == 0:
            more["start"] = open_model(self.place / "variants" / GNN / str(seed) / "model")
        begun = time.monotonic()
        model = train_gnn(store, self.dataset, queries_by, settings, place / "model", **more)
        seconds = time.monotonic() - begun
        kept = place / "measured.json"
        if kept.is_file() and (figures := json.loads(kept.read_text()))["model"] == model.hash and "alike" in figures:
            return dict(figures)
        features = self.encoded(model.path, place / "features") if model.has_encoder else None
        embeddings = embed_passages(model, store, place / "embeddings", features=features, overwrite=True)
        index = build_index(embeddings, place / "index", overwrite=True)
        ranked = self._ranked(index, features or queries_by, "test", DEEP)
        measures = per_query(self.qrels, _cut(ranked, DEPTH), list(MEASURES))
        figures = {
            "model": model.hash,
            "seed": seed,
            "seconds": json.loads(kept.read_text())["seconds"] if seconds < 10 and kept.is_file() else seconds,
            "alike": self.alike(ranked),
            "dev": model.meta["dev"],
            "measures": {str(measure): values for measure, values in measures.items()},
        }
        write_json(kept, figures)
        return figures

    def swept(self, setting: str, own: Sequence[Any], base: dict[str, Any], seeds: int) -> list[dict[str, Any]]:
        """A row for every value of a setting, tested against the dual-encoder and against the default GNN-encoder."""
        sweep = PLAN["sweeps"][setting]
        settings = GraphSettings() if sweep.get("graph") else TrainSettings(layer="gat")
        default = self.plan.get("train", {}).get(setting, getattr(settings, setting))
        by_value = {default: list(own[:seeds])}
        for value in sweep["values"]:
            if value != default:
                changes = {"graph": dict.fromkeys(sweep.get("graph", ()), value), "train": {setting: value}}
                by_value[value] = [self.measured(f"{setting}={value}", changes, seed) for seed in range(seeds)]
        tests = against({GNN: own, **{str(value): runs for value, runs in by_value.items() if value != default}})
        return [
            {"value": value, **spread(runs, base, "RR@10"), "against_gnn_encoder": tests.get(str(value))}
            for value, runs in sorted(by_value.items())
        ]

    def _ranked(self, index: Index, features: Features, split: str, depth: int = DEPTH) -> Run:
        queries = list(self.dataset.split(split))
        return index_run(index, queries, features.queries[features.rows_of(queries)], depth)

    def alike(self, run: Run) -> dict[str, float]:
        """RR@10 of each test question among passages like its relevant ones (:func:`rr_alike`)."""
        return rr_alike(run, self.qrels, self.labelled, DEPTH)

    def baselines(self) -> dict[str, Run]:
        """Test runs of BM25, the untuned checkpoint and the dual-encoders; on held-out questions, the last only."""
        runs: dict[str, Run] = {}
        if not self.plan.get("held_out"):
            rankings = self.encoders / "rankings"
            runs = {"bm25": read_run(rankings / "bm25.run"), "minilm": read_run(rankings / "start.run")}
        if self.features_all is not None:
            runs[ALL_LABELS] = features_run(self.features_all, list(self.qrels), DEPTH)
        return {**runs, DUAL: features_run(self.features, list(self.qrels), DEPTH)}


def measure(name: str, data: Path, work: Path, seeds: int, wanted: Sequence[str] = ()) -> dict[str, Any]:
    """All results of one set, or only those of some variants and sweeps."""
    plan = planned(PLAN["sets"][name]["variants"])
    names = [GNN, OVER_ALL, *wanted] if wanted else plan
    of_set = {**PLAN, **PLAN["sets"][name]}
    fewer, of_value = min(seeds, of_set["ablation_seeds"]), min(seeds, of_set["sweep_seeds"])
    one_set = OneSet(name, data, work, names)
    runs = one_set.baselines()
    measured = {
        system: {str(measure): values for measure, values in per_query(one_set.qrels, run, list(MEASURES)).items()}
        for system, run in runs.items()
    }
    base, of_all = measured[DUAL], measured.get(ALL_LABELS)
    variants = {}
    for variant, settings in PLAN["variants"].items():
        if variant in names and (of_all or not settings.get("over_all_labels")):
            most = seeds if variant in (GNN, OVER_ALL) else min(fewer, settings.get("seeds", fewer))
            variants[variant] = [one_set.measured(variant, settings, seed) for seed in range(most)]
    sweeps = {
        setting: one_set.swept(setting, variants[GNN], base, of_value) for setting in PLAN["sweeps"] if setting in names
    }
    pairs = {DUAL: (base, variants[GNN])} | ({ALL_LABELS: (of_all, variants[OVER_ALL])} if of_all else {})
    alike_base = one_set.alike(features_run(one_set.features, list(one_set.qrels), DEEP))
    of_baselines = compare(one_set.qrels, runs, DUAL, MEASURES, "test", {})
    return {
        "title": one_set.plan["title"],
        "baselines": of_baselines.as_json(),
        "baseline_table": markdown_comparison(of_baselines),
        "variants": {variant: rows_of(of_variant, base) for variant, of_variant in variants.items()},
        "alike": alike(alike_base, variants, one_set.qrels, one_set.dataset.passage_ids, one_set.labelled),
        "against_gnn_encoder": against(variants),
        "against_all_labels": of_all
        and {variant: spread(of_variant, of_all, "RR@10") for variant, of_variant in variants.items()},
        "sweeps": sweeps,
        "domains": domains(one_set.dataset, one_set.qrels, pairs),
        "unrepeated": unrepeated(one_set.dataset, one_set.qrels, variants[GNN], base),
        "graph": _inspected(one_set),
        "dataset": one_set.dataset.provenance(),
        "encoder": {**one_set.features.meta["encoder"], "checkpoint": one_set.dual},
        "query_share": one_set.query_share,
        "asked": [] if set(names) == set(plan) else sorted(set(names) - {GNN, OVER_ALL}, key=names.index),
        "seeds": seeds,
        "ablation_seeds": fewer,
        "sweep_seeds": of_value,
        "versions": library_versions(),
        "git_revision": git_revision(),
        "processors": os.cpu_count(),
    }


def train_settings(of_set: dict[str, Any], of_variant: dict[str, Any], seed: int) -> TrainSettings:
    """How a variant is trained on a set.

    With ``as_many_steps`` it takes as many steps as the GNN-encoder, whose epochs are only over the masked queries.
    """
    gat = {"layer": "gat", **of_set.get("train", {})}
    own = TrainSettings.parse(gat)
    fewer = {"epochs": round(own.epochs * own.mask_ratio)} if of_variant.get("as_many_steps") else {}
    return TrainSettings.parse({**gat, **fewer, **of_variant.get("train", {}), "seed": seed})


def planned(variants: str | list[str]) -> list[str]:
    """Variants and sweeps that are measured on a set, unless the command line names some.

    Args:
        variants: Their names, besides the GNN-encoder; ``main``: the variants marked as ``main``; ``all``: all sweeps,
            and all variants but those marked as ``apart``.
    """
    if variants == "main":
        return [variant for variant, settings in PLAN["variants"].items() if settings.get("main")]
    if variants != "all":
        return [GNN, *variants]
    return [*(variant for variant, settings in PLAN["variants"].items() if not settings.get("apart")), *PLAN["sweeps"]]


def _inspected(one_set: OneSet) -> dict[str, Any]:
    """The graph's figures, without paths of this machine."""
    figures = {**inspect_graph(one_set.graph({}), one_set.dataset.path).as_json(), "encoder": one_set.dual}
    return {**figures, "overlap": {**figures["overlap"], "dataset": one_set.dataset.name}}


def _cut(run: Run, depth: int) -> Run:
    return {query: ranking[:depth] for query, ranking in run.items()}


def _word(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, list) else str(value)


@click.command()
@click.option("--data", type=click.Path(path_type=Path), required=True, help="Folder with squad-open and fairytaleqa.")
@click.option("--work", type=click.Path(path_type=Path), required=True, help="Where everything is made and kept.")
@click.option("--only", "names", multiple=True, type=click.Choice(list(PLAN["sets"])), help="Some of the sets.")
@click.option(
    "--variant",
    "variants",
    multiple=True,
    type=click.Choice([*PLAN["variants"], *PLAN["sweeps"]]),
    help="Some of the variants and sweeps, beside the GNN-encoder itself.",
)
@click.option("--seeds", type=click.IntRange(1), default=5, show_default=True)
def main(data: Path, work: Path, names: tuple[str, ...], variants: tuple[str, ...], seeds: int) -> None:
    """Train, compare, and write the result files."""
    keep_freed_memory()
    for name in names or PLAN["sets"]:
        result = measure(name, data, work, seeds, variants)
        write_json(RESULTS / f"gnn_encoder-{name}.json", without_texts(result))
        for setting, rows in result["sweeps"].items():
            plot = sweep_plot(setting, rows, result)
            (RESULTS / f"gnn_encoder-{name}-{setting}.svg").write_text(plot, encoding="utf-8")
        page = markdown(name, result)
        (RESULTS / f"gnn_encoder-{name}.md").write_text(page, encoding="utf-8")
        click.echo(page)


if __name__ == "__main__":
    show_progress()
    main()
