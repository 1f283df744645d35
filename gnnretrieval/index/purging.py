"""Purging passages from the disk: from an index, and from the features, graph and embeddings behind it.

Rows stay, so that all artifacts still fit together: a purged passage is an id with an empty text and a vector of zeros.
Files are rewritten, never changed through a hard link, one artifact after another and the index last. After an
interruption, the same call continues.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.text_store import TextStore
from gnnretrieval.encoders.features import KIND as FEATURES
from gnnretrieval.encoders.features import open_features
from gnnretrieval.encoders.part_files import SENTENCE_STARTS, SENTENCES, TOKEN_IDS, TOKEN_STARTS, TOKENS
from gnnretrieval.errors import counted
from gnnretrieval.graph.build import open_bm25
from gnnretrieval.graph.settings import GraphSettings
from gnnretrieval.graph.store import KIND as GRAPH
from gnnretrieval.graph.store import TEXTS, open_graph
from gnnretrieval.index.baseline import indexes_beside
from gnnretrieval.index.blanking import blank_vectors, require_blankable
from gnnretrieval.index.faiss_index import KIND as INDEX
from gnnretrieval.index.faiss_index import Index, open_index
from gnnretrieval.index.updating import remove_passages
from gnnretrieval.progress import say
from gnnretrieval.storage.artifacts import Artifact, share_file
from gnnretrieval.storage.places import settle
from gnnretrieval.storage.provenance import sha256_of_json
from gnnretrieval.storage.purged import PURGED
from gnnretrieval.storage.updating import own_copy, record_changes, update_artifact
from gnnretrieval.training.gnn.embeddings import ARRAY, Embeddings, open_embeddings
from gnnretrieval.training.gnn.embeddings import KIND as EMBEDDINGS

_OPEN: dict[str, Callable[[Path], Artifact]] = {
    FEATURES: open_features,
    GRAPH: open_graph,
    EMBEDDINGS: open_embeddings,
    INDEX: open_index,
}
_IS = {FEATURES: "are", GRAPH: "is", EMBEDDINGS: "are"}
_BY_PASSAGE = {FEATURES: (ARRAY,), GRAPH: ("passage_features.npy", "passage_loops.npy"), EMBEDDINGS: (ARRAY,)}
_BY_EDGE = {
    "neighbors.npy": ("scores", "edge_features", "edge_vectors", "edge_scales", "probabilities"),
    "found_neighbors.npy": ("found_scores",),
}
_SEARCHED = {".json", ".jsonl", ".md", ".html", ".tsv", ".csv", ".txt", ".sqlite", ".run", ".toml"}
_LEAST = 12  # characters: shorter texts are not searched for in other files
_BEGINNING = 100  # characters of a text that are searched for: pages show the first few hundred


def purge_passages(out: str | Path, ids: Sequence[str]) -> Index:
    """Remove passages from the index at ``out``, and delete their texts, vectors and edge values from the disk.

    The same is done to the dual-encoder's index beside it, to a run's other index over the same graph, and to the
    embeddings, graph and features behind them.
    Messages name the files beside the index that still hold a purged text, and the dataset, which is not changed.

    Args:
        out: The index.
        ids: Ids of the passages; passages that were removed before may be among them.

    Raises:
        InputError: As :func:`gnnretrieval.index.updating.remove_passages`.
        ArtifactError: Vectors of this kind of index cannot be overwritten one by one, or another process is writing
            one of the artifacts.
    """
    settle(Path(out), INDEX)
    for opened in (first := open_index(out), *indexes_beside(first)):
        require_blankable(opened)
    index = remove_passages(out, ids)
    with TextStore(index.path / TEXTS) as texts:
        rows = texts.rows_of_passages(list(dict.fromkeys(ids)))
        held = [text for row in rows.values() if len(text := texts.passage(row).text) >= _LEAST]
    renamed, shared = dict[str, str](), dict[tuple[int, int], Path]()
    behind, datasets = _behind(index)
    for place in behind:
        settle(place, INDEX)
    _say_other_names([*behind])
    for place, kind in behind.items():
        if kind == INDEX and (present := _present(place, ids)):
            remove_passages(place, present)
        artifact = _purge_one(place, kind, ids, renamed, shared)
        for record in artifact.meta.get("updates", []):
            if PURGED in record["change"]:
                renamed[record["before"]] = artifact.hash
    # reports, runs and logs beside the index may quote a text; they are not artifacts, and only named
    for file in _still_holding(index.path.resolve().parent, held):
        say(f"{file}: it still holds the text of a purged passage. Delete it, or make it again.")
    for place in datasets:
        say(f"{place}: the dataset is left as it is. Take the passages out of it too.")
    return open_index(out)


def _behind(index: Index) -> tuple[dict[Path, str], list[Path]]:
    """Artifacts that hold the index's passages, and datasets.

    Returns:
        Kind of each artifact by its path, every artifact after those it was made from and the index last; paths of the
        datasets.
    """
    kinds: dict[Path, str] = {}
    datasets: dict[Path, None] = {}

    def visit(artifact: Artifact) -> None:
        for name in artifact.meta.get("made_from", {}):
            place = artifact.made_from(name)
            if name == "dataset":
                datasets[place] = None
            if name not in _BY_PASSAGE or place in kinds:
                continue
            settle(place, name)
            if (place / "meta.json").is_file():
                visit(_OPEN[name](place))
                kinds[place] = name
            else:
                say(f"{place}: the {name} that {artifact.path} was made from {_IS[name]} not there any more")
        if artifact.meta["kind"] == INDEX:
            kinds[artifact.path.resolve()] = INDEX

    for other in indexes_beside(index):
        visit(other)
    visit(index)
    return kinds, [*datasets]


def _say_other_names(places: Sequence[Path]) -> None:
    """Print a warning for each file of texts that artifacts outside ``places`` share by hard links."""
    names: dict[tuple[int, int], list[Path]] = {}
    for place in places:
        status = (place / TEXTS).stat()
        names.setdefault((status.st_dev, status.st_ino), []).append(place / TEXTS)
    for own in names.values():
        if (more := own[0].stat().st_nlink - len(own)) > 0:
            say(
                f"{own[0]}: {counted(more, 'other artifact shares', 'other artifacts share')} this file and will still "
                "hold the texts. Purge the index of each too."
            )


def _present(place: Path, ids: Sequence[str]) -> list[str]:
    with TextStore(place / TEXTS) as texts:
        return [*texts.rows_of_passages(list(dict.fromkeys(ids)))]


def _purge_one(
    place: Path,
    kind: str,
    ids: Sequence[str],
    renamed: dict[str, str],
    shared: dict[tuple[int, int], Path],
) -> Artifact:
    artifact = _OPEN[kind](place)
    with TextStore(place / TEXTS) as texts:
        rows = np.array(sorted(texts.rows_of_passages(list(dict.fromkeys(ids))).values()), dtype=np.int64)
    change = {PURGED: sha256_of_json(rows.tolist()), "passages": len(rows)}
    if not len(rows) or any(record["change"] == change for record in artifact.meta.get("updates", [])):
        return artifact
    status = (place / TEXTS).stat()
    before = status.st_dev, status.st_ino

    def write(directory: Path) -> dict[str, Any]:
        if before in shared:
            share_file(shared[before], directory / TEXTS)
        else:
            with TextStore(own_copy(artifact, directory, TEXTS), extend=True) as texts:
                texts.purge_passages(rows.tolist())
        if isinstance(artifact, Index):
            blank_vectors(artifact, directory)
            return {}
        _blank_arrays(artifact, directory, rows)
        if kind == GRAPH:
            settings = GraphSettings.parse({"label_edges": False, **artifact.config}, place / "meta.json")
            open_bm25(directory, settings, lambda name, make: make())
        record_changes(directory, artifact, rows)
        return {}

    inputs = {name: renamed[value] for name, value in artifact.meta["inputs"].items() if value in renamed}
    update_artifact(artifact, kind, change=change, inputs=inputs or None, write=write)
    shared.setdefault(before, place / TEXTS)
    say(f"{place}: the {kind} lost the text and vectors of {counted(len(rows), 'passage')}")
    return _OPEN[kind](place)


def _blank_arrays(artifact: Artifact, directory: Path, passages: NDArray[np.int64]) -> None:
    """Overwrite with zeros all vectors of the passages and of their sentences, and all values of edges to them."""
    files = artifact.meta["files"]

    def blank(name: str, rows: Any) -> None:
        array = np.load(own_copy(artifact, directory, name), mmap_mode="r+")
        array[rows] = 0
        array.flush()

    vectors = passages
    if isinstance(artifact, Embeddings) and (of_vectors := artifact.rows) is not None:
        vectors = np.flatnonzero(np.isin(of_vectors, passages))
    for name in _BY_PASSAGE[artifact.meta["kind"]]:
        if name in files:
            blank(name, vectors)
    for parts, offsets in (
        (SENTENCES, SENTENCE_STARTS),
        (TOKENS, TOKEN_STARTS),
        (TOKEN_IDS, TOKEN_STARTS),
    ):
        if parts in files:
            starts = np.load(artifact.path / offsets)
            blank(parts, np.concatenate([np.arange(starts[row], starts[row + 1]) for row in passages.tolist()]))
    for neighbors, names in _BY_EDGE.items():
        if neighbors in files:
            edges = np.nonzero(np.isin(np.load(artifact.path / neighbors, mmap_mode="r"), passages))
            for name in (f"{name}.npy" for name in names):
                if name in files:
                    blank(name, edges)


def _still_holding(directory: Path, texts: Sequence[str]) -> Iterator[Path]:
    """Text files in ``directory`` and below that hold the beginning of one of ``texts``, as pages and JSON write it."""
    begun = {start for text in texts for start in (text[:_BEGINNING], " ".join(text.split())[:_BEGINNING])}
    in_json = [json.dumps(text, ensure_ascii=ascii_)[1:-1] for text in begun for ascii_ in (True, False)]
    in_scripts = [text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e") for text in in_json]
    forms = {*begun, *in_json, *in_scripts, *map(html.escape, begun)}
    wanted = [form.encode("utf-8", "surrogatepass") for form in forms]
    for file in sorted(directory.rglob("*")):
        if file.suffix in _SEARCHED and file.is_file() and not file.is_symlink():
            content = file.read_bytes()
            if any(form in content for form in wanted):
                yield file
