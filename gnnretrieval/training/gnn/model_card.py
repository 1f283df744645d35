"""The card of a GNN-encoder: what it is, every figure with its source, and how to use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gnnretrieval.encoders.trained import PASSAGE
from gnnretrieval.graph.edges.sources import EDGE_SOURCES
from gnnretrieval.graph.store import Graph
from gnnretrieval.training.gnn.selection import Selection, what_was_kept
from gnnretrieval.training.gnn.settings import OF_EVERY_LAYER, TrainSettings

CARD = "README.md"
_GNN = (
    "A graph neural network that moves the passage embeddings of a dual-encoder towards the training questions that "
    "found them ([GNN-encoder](https://arxiv.org/abs/2204.08241), eq. 6-10)."
)
_LINEAR = (
    "A query-passage graph moves the passage embeddings of a dual-encoder towards the training questions that are "
    "labelled with them and away from those that only found them, under one linear head that is folded into them."
)


def model_card(
    meta: Mapping[str, Any],
    settings: TrainSettings,
    store: Graph,
    selection: Selection | None = None,
    towers: Sequence[str] = (),
) -> str:
    """The card, in Markdown, with the front matter that model hubs read.

    It says nothing of when, where and by which version the model was made: ``meta.json`` does, and the same training
    gives the same card.

    Args:
        meta: What the artifact says of the model.
        settings: How it was trained.
        store: The graph.
        selection: What was kept of it, with layer = gat.
        towers: Folders of the dual-encoder that was trained with it.
    """
    dev, chosen, best = meta["dev"], meta["dev"]["chosen"], meta["dev"]["best"]
    encoder = _name_of(meta["encoder"]["checkpoint"])
    before, after = dev["dual_encoder"]["RR@10"], chosen["RR@10"]
    by = "`log.jsonl`" if selection is None else f"`log.jsonl`, epoch {best['epoch']}"
    figures = [
        ("dev RR@10 of the dual-encoder", f"{100 * before:.1f}", "`meta.json`, `dev`"),
        ("dev RR@10 of this model", f"{100 * after:.1f}", "`meta.json`, `dev`"),
        ("gain that was chosen by", f"{100 * best['gain']:+.1f}", by),
        ("its p-value (paired, one-sided)", f"{best['p']:.2g}", "`meta.json`, `dev`" if selection is None else by),
        ("dev questions", f"{dev['queries']:,} of {dev['split']}", "`meta.json`, `dev`"),
        ("passages they were ranked among", f"{dev['passages']:,}", "`meta.json`, `dev`"),
    ]
    dataset = meta["dataset"]
    lines = [
        "---",
        "library_name: gnnretrieval",
        "pipeline_tag: sentence-similarity",
        "tags: [dense-retrieval, gnn-encoder, passage-ranking]",
        *([f"base_model: {encoder}"] if "/" in encoder else []),
        "---",
        "",
        f"# GNN-encoder over {encoder}",
        "",
        _what(settings)
        + " Passages are embedded offline; a question is encoded by the dual-encoder "
        + (f"that was trained with it ({', '.join(f'`{it}/`' for it in towers)})." if towers else "alone, as before."),
        "",
        f"Kept is {what_was_kept(dev)}, which was chosen on dev; no test question was looked at.",
        *(_remarks(selection, settings, meta) if selection is not None else _remarks_of_linear(dev)),
        "",
        "| figure | value | source |",
        "| --- | ---: | --- |",
        *(f"| {what} | {value} | {source} |" for what, value, source in figures),
        "",
        "## Graph and data",
        "",
        f"- {store.num_passages:,} passages, {store.num_queries:,} training questions, each joined to "
        f"{settings.k or store.k} passages: {_joined_to(store)}",
        *(["- a passage hears no question that is labelled with it"] if settings.passage_edges != "all" else []),
        *_trained_on(meta.get("queries", {})),
        *(f"- {line}" for line in _went_on_from(meta["made_from"])),
        f"- edge features: {', '.join(meta['edge_features']) or 'none'}",
        f"- dataset {dataset['name']}, content hash `{dataset['hash'][:16]}…` (`meta.json`, `dataset`)",
        "",
        "## Training",
        "",
        "| setting | value |",
        "| --- | --- |",
        *(f"| {key} | {value} |" for key, value in _flat(settings.model_dump(mode="json")) if _matters(key, settings)),
        "",
        "## Use",
        "",
        "MODEL is this directory.",
        "",
        "```",
        *(
            [
                "gnnretrieval encoder encode DATASET --checkpoint MODEL --out features",
                "gnnretrieval embed MODEL --features features --out embeddings",
            ]
            if towers
            else ["gnnretrieval embed MODEL --out embeddings"]
        ),
        "gnnretrieval index build embeddings --out index",
        'gnnretrieval search "a question" --index index --explain',
        "```",
        "",
        "It belongs to the graph and the dual-encoder it was trained over: `meta.json` has their hashes.",
    ]
    return "\n".join(lines) + "\n"


def _what(settings: TrainSettings) -> str:
    if settings.layer == "linear":
        return _LINEAR
    return _GNN if settings.layer == "gat" else f"{_GNN} In the place of its graph attention stands `{settings.layer}`."


def _remarks_of_linear(dev: Mapping[str, Any]) -> list[str]:
    if dev["best"]["gain"] > 0 and not dev["believed"]:
        return ["", f"The gain was not believed (p above evidence = {dev['evidence']:g}): it embeds as before."]
    return [] if dev["believed"] else ["", "Nothing helped on dev: it embeds as the dual-encoder does."]


def _remarks(selection: Selection, settings: TrainSettings, meta: Mapping[str, Any]) -> list[str]:
    best = selection.best
    if best["gain"] <= 0:
        return ["", "The graph did not help on dev: with context scale 0 it embeds as the dual-encoder does."]
    if not selection.believed:
        return ["", f"The best gain was not believed (p above evidence = {selection.evidence:g}): it embeds as before."]
    weak = selection.transferred and best["p"] > settings.evidence
    lines = ["", f"Its {selection.weak}."] if weak else []
    if settings.epochs and not best["epoch"]:
        lines += ["", f"Training: {selection.nothing_gained('start' in meta['made_from'])}."]
    return lines


def _joined_to(store: Graph) -> str:
    labels = "those that it is labelled with, then " if store.config["label_edges"] else ""
    source = EDGE_SOURCES.get(store.config["edges"])
    return labels + ("the dual-encoder's best" if source is None else source.words)


def _went_on_from(made_from: Mapping[str, str]) -> list[str]:
    """What else than the graph's labels it learned from."""
    lines = [f"denoised positives and negatives: `{at}`" for name, at in made_from.items() if name.startswith("exam")]
    if "start" in made_from:
        lines.append(f"went on from the GNN-encoder `{made_from['start']}`")
    return [f"{line} (hash in `meta.json`, `inputs`)" for line in lines]


def _name_of(checkpoint: str) -> str:
    """A hub's name as it is; of an encoder that was trained here its directory's name, of any other path its last."""
    parts = checkpoint.split("/")
    if len(parts) == 2 and parts[0] not in ("", ".", ".."):
        return checkpoint
    return parts[-2] if parts[-1] == PASSAGE and len(parts) > 1 else parts[-1]


def _trained_on(queries: Mapping[str, int]) -> list[str]:
    spared = queries.get("labelled", 0) - queries.get("trained_on", 0)
    if not spared:
        return []
    return [
        f"- trained on the {queries['trained_on']:,} of them that the dual-encoder did not learn from, not on the "
        f"{spared:,} that it did"
    ]


def _flat(values: Mapping[str, Any], before: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            found += _flat(value, f"{before}{key}.")
        else:
            text = ", ".join(f"{part:g}" for part in value) if isinstance(value, list) else str(value)
            found.append((f"{before}{key}", text))
    return found


def _matters(key: str, settings: TrainSettings) -> bool:
    if settings.layer == "linear":
        return key in OF_EVERY_LAYER
    return settings.is_joint or not key.startswith("dual_encoder.")
