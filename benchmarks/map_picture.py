"""README's picture: the map of networkx's functions, of which questions are the summaries that were cut out of them.

Writes ``docs/start/map.svg``.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from gnnretrieval import Dataset, GraphRetriever
from gnnretrieval.data import make_docstring_corpus
from gnnretrieval.maps.building import build_map, embeddings_behind
from gnnretrieval.maps.picture import write_picture

PICTURE = Path(__file__).parents[1] / "docs" / "start" / "map.svg"
ENCODER = "sentence-transformers/all-MiniLM-L6-v2"


def main() -> None:
    """Make the dataset, train by the defaults, and draw."""
    with TemporaryDirectory() as place:
        dataset = Dataset.open(make_docstring_corpus(Path(place) / "docstrings", "question").path)
        passages = [one for one in dataset.passages() if one.id.startswith("networkx.")]
        kept = {one.id for one in passages}
        splits = {
            name: {query: its for query, its in dataset.split(name).items() if its.keys() <= kept}
            for name in dataset.splits
        }
        queries = {one.id: one.text for one in dataset.queries() if any(one.id in its for its in splits.values())}
        texts = {one.id: one.full_text for one in passages}
        train, dev = splits["train"], splits["dev"] | splits["test"]  # nothing is measured here
        retriever = GraphRetriever.fit(texts, queries, train, dev=dev, encode=ENCODER, out=Path(place) / "run")
        print(f"{len(texts):,} passages, {len(train):,} training questions, {len(dev):,} of dev; {retriever}")
        drawn = build_map(embeddings_behind(Path(place) / "run"), Path(place) / "map")
        print({name: drawn.meta[name] for name in ("share_moved", "variance_kept", "displacement_kept", "after_head")})
        write_picture(drawn, PICTURE)


if __name__ == "__main__":
    main()
