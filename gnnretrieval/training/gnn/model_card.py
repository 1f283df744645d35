"""Model card of a GNN-encoder: what it is, its figures with their sources, and how to use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gnnretrieval.encoders.trained import PASSAGE
from gnnretrieval.graph.edges.sources import EDGE_SOURCES
from gnnretrieval.graph.store import Graph
from gnnretrieval.training.gnn.selection import Selection, what_was_kept
from gnnretrieval.training.gnn.settings import OF_EVERY_LAYER, OF_ITS_ENCODER, OF_QUERY_ENCODER, TrainSettings

CARD = "README.md"
_GNN = (
    "A graph neural network that moves the passage embeddings of a dual-encoder towards the training questions that "
    "found them ([GNN-encoder](https://arxiv.org/abs/2204.08241), eq. 6-10)."
)
_LINEAR = (
    "A query-passage graph moves the passage embeddings of a dual-encoder towards their labelled training questions "
    "and away from other questions that found them. Linear heads are folded into the embeddings."
)
_JOINT_LINEAR = (
    "A dual-encoder whose query encoder was trained against the stored embeddings of all passages (ADORE, Zhan et al. "
    "2021) together with a linear head, and a query-passage graph that moves these embeddings towards their labelled "
    "training questions, where that gained on dev over the same without training the encoder."
)
_UNCHANGED = "its embeddings are the dual-encoder's."


def model_card(
    meta: Mapping[str, Any],
    settings: TrainSettings,
    store: Graph,
    selection: Selection | None = None,
    towers: Sequence[str] = (),
) -> str:
    """The card as Markdown, with the front matter that model hubs read.

    The same training gives the same card: time, place and versions are in ``meta.json`` only.

    Args:
        meta: Metadata of the model.
        settings: Settings of its training.
        store: The graph.
        selection: The choice on dev; None with layer = linear.
        towers: Folders of the dual-encoder that was trained with it.
    """
    dev, dataset = meta["dev"], meta["dataset"]
    encoder = _name_of(meta["encoder"]["checkpoint"])
    folders = ", ".join(f"`{tower}/`" for tower in towers)
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
        + (f"that was trained with it ({folders})." if towers else "alone, as before."),
        "",
        f"Kept: {what_was_kept(dev)}. This was chosen on dev; no test question was used.",
        *(_remarks(selection, settings, meta) if selection is not None else _remarks_of_linear(dev)),
        "",
        "| figure | value | source |",
        "| --- | ---: | --- |",
        *(f"| {what} | {value} | {source} |" for what, value, source in _figures(dev, selection)),
        "",
        "## Graph and data",
        "",
        f"- {store.num_passages:,} passages, {store.num_queries:,} training questions, each joined to "
        f"{settings.k or store.k} passages: {_joined_to(store)}",
        *(["- a passage attends to no question labelled with it"] if settings.passage_edges != "all" else []),
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
        *_commands(has_encoder=bool(towers)),
        "```",
        "",
        "It belongs to the graph and the dual-encoder it was trained over: `meta.json` has their hashes.",
    ]
    return "\n".join(lines) + "\n"


def _figures(dev: Mapping[str, Any], selection: Selection | None) -> list[tuple[str, str, str]]:
    """Rows of the table of figures: name, value and source."""
    best, beside = dev["best"], dev.get("cross_validated")  # the gain is measured on both
    passages = "those shown; weighted by the chance of a label" if dev.get("by_clicks") else f"{dev['passages']:,}"
    of_meta = "`meta.json`, `dev`"
    by = "`log.jsonl`" if selection is None else f"`log.jsonl`, epoch {best['epoch']}"
    gains = [
        ("gain of the best setting", f"{100 * best['gain']:+.1f}", by),
        ("its p-value (paired, one-sided)", f"{best['p']:.2g}", of_meta if selection is None else by),
    ]
    if joint := dev.get("joint"):  # the log is that of the query encoder's training
        error = "" if joint["error"] is None else f" ± {100 * joint['error']:.1f}"
        gains = [
            ("gain of the best setting over the frozen encoder", f"{100 * best['gain']:+.1f}", of_meta),
            ("its p-value (paired, one-sided)", f"{best['p']:.2g}", of_meta),
            ("gain of training the query encoder, over that", f"{100 * joint['gain']:+.1f}{error}", of_meta),
            ("its p-value over the dual-encoder", f"{joint['p']:.2g}", of_meta),
        ]
    return [
        ("dev RR@10 of the dual-encoder", f"{100 * dev['dual_encoder']['RR@10']:.1f}", of_meta),
        ("dev RR@10 of this model", f"{100 * dev['chosen']['RR@10']:.1f}", of_meta),
        *gains,
        ("dev questions", f"{dev['queries']:,} of {dev['split']}", of_meta),
        *([("cross-validated training questions beside them", f"{beside:,}", of_meta)] if beside else []),
        ("passages ranked for them", passages, of_meta),
    ]


def _commands(*, has_encoder: bool) -> list[str]:
    """Commands from the model to a search."""
    embed = ["gnnretrieval embed MODEL --out embeddings"]
    if has_encoder:
        embed = [
            "gnnretrieval encoder encode DATASET --checkpoint MODEL --out features",
            "gnnretrieval embed MODEL --features features --out embeddings",
        ]
    return [
        *embed,
        "gnnretrieval index build embeddings --out index",
        'gnnretrieval search "a question" --index index --explain',
    ]


def _what(settings: TrainSettings) -> str:
    if settings.layer == "linear":
        return _JOINT_LINEAR if settings.is_joint else _LINEAR
    return _GNN if settings.layer == "gat" else f"{_GNN} `{settings.layer}` replaces its graph attention."


def _remarks_of_linear(dev: Mapping[str, Any]) -> list[str]:
    remarks = []
    if dev["best"]["gain"] > 0 and not dev["believed"]:
        p = f"p = {dev['best']['p']:.2g}, above evidence = {dev['evidence']:g}"
        remarks += ["", f"The gain may be chance ({p}): {_UNCHANGED}"]
    elif not dev["believed"]:
        remarks += ["", f"Nothing helped on dev: {_UNCHANGED}"]
    if one := dev.get("one_vector"):
        kept = f"what is kept is {one['kept']}" if one["believed"] else "the vectors are the dual-encoder's"
        remarks += [
            "",
            "A passage has one vector more for each of its training questions: on dev that gained more than a standard "
            f"error. With one vector a passage (`gnnretrieval embed --one-vector`), {kept}: dev RR@10 "
            f"{100 * one['chosen']['RR@10']:.1f}.",
        ]
    return remarks


def _remarks(selection: Selection, settings: TrainSettings, meta: Mapping[str, Any]) -> list[str]:
    best = selection.best
    if best["gain"] <= 0:
        return ["", f"The graph did not help on dev, so the context scale is 0: {_UNCHANGED}"]
    if not selection.is_significant:
        return ["", f"The best gain was not significant (p above evidence = {selection.evidence:g}): {_UNCHANGED}"]
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
    """Sources of training besides the graph's labels."""
    lines = [f"denoised positives and negatives: `{at}`" for name, at in made_from.items() if name.startswith("exam")]
    if "start" in made_from:
        lines.append(f"started from the GNN-encoder `{made_from['start']}`")
    return [f"{line} (hash in `meta.json`, `inputs`)" for line in lines]


def _name_of(checkpoint: str) -> str:
    """Name of a checkpoint: a hub name unchanged, else the last folder of a path (of an artifact, the artifact's)."""
    parts = checkpoint.split("/")
    if len(parts) == 2 and parts[0] not in ("", ".", ".."):
        return checkpoint
    return parts[-2] if parts[-1] == PASSAGE and len(parts) > 1 else parts[-1]


def _trained_on(queries: Mapping[str, int]) -> list[str]:
    seen = queries.get("labelled", 0) - queries.get("trained_on", 0)
    if not seen:
        return []
    return [
        f"- trained on {queries['trained_on']:,} questions that the dual-encoder did not learn from, not on the "
        f"{seen:,} that it did"
    ]


def _flat(values: Mapping[str, Any], before: str = "") -> list[tuple[str, str]]:
    """Nested settings as rows of dotted names and values."""
    rows: list[tuple[str, str]] = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            rows += _flat(value, f"{before}{key}.")
        else:
            text = ", ".join(f"{part:g}" for part in value) if isinstance(value, list) else str(value)
            rows.append((f"{before}{key}", text))
    return rows


def _matters(key: str, settings: TrainSettings) -> bool:
    if settings.layer == "linear":
        of_joint = (*OF_QUERY_ENCODER, *(f"dual_encoder.{name}" for name in OF_ITS_ENCODER))
        matters = (*OF_EVERY_LAYER, *(of_joint if settings.is_joint else ()))
        return key in matters or (key == "passages" and settings.passages is not None)
    return settings.is_joint or not key.startswith("dual_encoder.")
