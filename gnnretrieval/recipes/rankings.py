"""The stage of a recipe that ranks: by BM25 and by every index, on the reported split and on dev."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gnnretrieval.baselines.rankings import DEV
from gnnretrieval.data import Dataset
from gnnretrieval.data.runs.trec import Run, write_run
from gnnretrieval.encoders.bm25 import BM25
from gnnretrieval.encoders.features import Features
from gnnretrieval.encoders.trained import GNN_ENCODER
from gnnretrieval.index.faiss_index import Index
from gnnretrieval.index.hybrid import Ranker
from gnnretrieval.index.search import bm25_run, index_run
from gnnretrieval.progress import say
from gnnretrieval.recipes.recipe import Recipe
from gnnretrieval.storage.artifacts import Artifact
from gnnretrieval.storage.making import make_artifact
from gnnretrieval.training.gnn.held_out import HELD_OUT_NAME, dev_split
from gnnretrieval.training.gnn.model import HELD_OUT_DEPTH, GNNEncoderModel

BM25_SYSTEM, DUAL_ENCODER = "bm25", "dual-encoder"


def rank_systems(
    recipe: Recipe,
    dataset: Dataset,
    systems: dict[str, tuple[Index, Features]],
    ranker: Ranker | None,
    model: GNNEncoderModel,
    directory: Path,
) -> Artifact:
    """Rank the reported split and dev by BM25 and by every system's index, and the reported split by ``ranker``.

    Without a dev split, the questions that training held out take its place, as the model ranked them without having
    learned from them.

    Args:
        recipe: The recipe.
        dataset: Its dataset.
        systems: Index and features by system.
        ranker: Ranks by the recipe's ``[ranking]``; None: there is none.
        model: The GNN-encoder.
        directory: Directory of the run.
    """
    split, depth = recipe.compare.split, recipe.compare.depth
    dev = dev_split(dataset)
    held_out = model.held_out_run if dev is None and depth <= HELD_OUT_DEPTH else {}
    texts = {name: {query.id: query.text for query in dataset.queries_of(name)} for name in (split, dev) if name}
    if held_out:
        dev = HELD_OUT_NAME
        texts[dev] = {query.id: query.text for query in dataset.queries_of(recipe.graph.split) if query.id in held_out}

    def write(target: Path) -> dict[str, Any]:
        bm25 = BM25((passage.full_text for passage in dataset.passages()), total=len(dataset.passage_ids))
        for part, queries in texts.items():
            place = target / ("" if part == split else DEV)
            place.mkdir(exist_ok=True)
            by_words = bm25_run(bm25, queries, dataset.passage_ids, depth)
            if not any(by_words.values()):
                say(f"BM25 finds nothing: no passage shares a word with a question of {part}")
            write_run(place / f"{BM25_SYSTEM}.run", by_words, BM25_SYSTEM, may_be_empty=True)
            for name, (index, features) in systems.items():
                vectors = features.queries[features.rows_of(queries)]
                if name == GNN_ENCODER and part == HELD_OUT_NAME:
                    run: Run = {query: held_out[query][:depth] for query in queries}
                else:
                    run = index_run(index, list(queries), vectors, depth)
                write_run(place / f"{name}.run", run, name)
        if ranker is not None:
            queries, name = texts[split], GNN_ENCODER + ranker.settings.suffix
            features = systems[GNN_ENCODER][1]
            vectors = features.queries[features.rows_of(queries)]
            write_run(target / f"{name}.run", ranker.run(queries, vectors, depth), name)
        return {"split": split, "queries": len(texts[split])}

    return make_artifact(
        directory / "rankings",
        "rankings",
        inputs={"dataset": dataset.hash}
        | {name: index.hash for name, (index, _) in systems.items()}
        | {f"features of {name}": features.hash for name, (_, features) in systems.items()}
        | ({GNN_ENCODER + " of held-out queries": model.hash} if held_out else {})
        | ({} if ranker is None or ranker.reranker_hash is None else {"re-ranker": ranker.reranker_hash}),
        config={"split": split, "depth": depth, "dev": dev}
        | ({} if ranker is None else {"ranking": ranker.settings.model_dump(mode="json", exclude={"rerank"})}),
        write=write,
        overwrite=True,
    )
