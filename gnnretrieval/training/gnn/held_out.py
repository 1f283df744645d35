"""The dev questions: those of the dev split or, without one, training questions held out of the graph.

Three kinds of question are held out, because later questions may be of any kind. One is all questions of some passages,
while similar passages keep theirs. Another is all questions of some *topics* (a passage and those most similar to it),
as for a new document. The third is single questions, as if the later questions were like those that are known. A
setting is judged by all of them together, and must not harm any kind.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.encoders.exact_search import exact_top_k
from gnnretrieval.encoders.features import Features
from gnnretrieval.errors import GnnRetrievalError, InputError
from gnnretrieval.feedback.clicked_questions import ClickedQuestions, clicked_questions, open_clicks
from gnnretrieval.graph.mask import mask_queries
from gnnretrieval.graph.store import Graph
from gnnretrieval.graph.subgraph import Rows
from gnnretrieval.storage.arrays import blocks, gather_rows

DEV_NAMES = ("dev", "validation", "val")
HELD_OUT_NAME = "held-out training queries"
BY_PASSAGE, BY_TOPIC, BY_QUESTION = range(3)  # kinds of held-out questions
HELD_OUT = 1 / 12  # share of the training queries held out for each kind, without a dev split
MOST_HELD_OUT = 2000  # of each kind: more decide nothing that these do not
TOPIC = 32  # maximum number of passages of a topic; a hundredth of the corpus if that is less
_SEEDS = 64  # topics searched together
_ROWS = 4096  # vectors compared together


class HeldOut(NamedTuple):
    """Questions that training does not learn from.

    Attributes:
        name: Name of the split, or :data:`HELD_OUT_NAME`.
        ids: Ids of the questions.
        queries: ``(q, d)`` features.
        texts: Texts of the questions.
        relevant: Rows of each question's relevant passages.
        hidden: ``(n,)`` bool, True for queries that are kept out of training and of its graph; None: there are none.
        parts: ``(q,)`` int64, the kind of each held-out training question; 0 for those of a dev split.
        clicked: How the questions count in a dataset from event logs; None: all alike.
        clicked_in_graph: The same for the ``n`` queries of the graph.
        may_join: ``(n,)`` bool, False for queries of the graph that must not be judged beside these, since the
            dual-encoder learned from them; None: all may.
    """

    name: str
    ids: list[str]
    queries: NDArray[np.floating]
    texts: list[str]
    relevant: list[list[int]]
    hidden: NDArray[np.bool_] | None
    parts: NDArray[np.int64]
    clicked: ClickedQuestions | None = None
    clicked_in_graph: ClickedQuestions | None = None
    may_join: NDArray[np.bool_] | None = None

    def only(self, rows: Sequence[int]) -> HeldOut:
        """The questions at these positions."""
        return self._replace(
            ids=[self.ids[row] for row in rows],
            queries=self.queries[rows],
            texts=[self.texts[row] for row in rows],
            relevant=[self.relevant[row] for row in rows],
            parts=self.parts[rows],
            clicked=None if self.clicked is None else self.clicked.only(rows),
        )

    @property
    def is_split(self) -> bool:
        """Whether these are the queries of a split of the dataset."""
        return self.name in DEV_NAMES


def dev_split(dataset: Dataset) -> str | None:
    """Name of the dev split: the first of ``dev``, ``validation`` and ``val``; None if there is none."""
    return next((name for name in DEV_NAMES if name in dataset.splits), None)


def require_new_queries(dataset: Dataset, split: str, in_graph: Set[str]) -> None:
    """Check that no query of a split that is reported on was learned from, or chooses settings.

    Args:
        dataset: The dataset.
        split: The split that is reported on.
        in_graph: Ids of the graph's queries.

    Raises:
        InputError: A query is in the graph, or in the dev split too.
    """
    reported, dev = set(dataset.query_ids_of(split)), dev_split(dataset)  # also those of a split with answers alone
    places = {"the graph": in_graph}
    if dev is not None and dev != split:
        places[f"split {dev!r}, which chooses settings"] = dataset.split(dev).keys()
    for place, ids in places.items():
        if both := reported & ids:
            raise InputError(
                f"{len(both):,} of the {len(reported):,} queries of split {split!r}, such as {min(both)!r}, are also "
                f"in {place}: on these, results would measure memory. Remove them from one of the splits.",
                dataset.path,
            )


def held_out_queries(
    store: Graph,
    dataset: Dataset,
    features: Features,
    seed: int,
    unseen: NDArray[np.bool_] | None = None,
) -> HeldOut:
    """The dev split's questions; without one, a quarter of the graph's: by passage, by topic, and single ones.

    Args:
        store: The graph.
        dataset: The dataset, with or without a dev split.
        features: Features of its queries.
        seed: Seed of the choice of held-out questions.
        unseen: ``(n,)`` bool, False for queries of the graph that must not be dev questions, even if they are held out;
            None: all may.

    Raises:
        GnnRetrievalError: The dev split has no relevant passage or is the graph's own, or the graph is too small to
            hold questions out.
    """
    split = dev_split(dataset)
    row_of = {id_: row for row, id_ in enumerate(dataset.passage_ids)}
    clicks = open_clicks(dataset)
    clicked = None
    if clicks is not None:
        with store.texts() as texts:
            clicked = clicked_questions(clicks, store.config["split"], row_of, texts.query_ids())
    if split is None:
        rng = np.random.default_rng([seed, 0, 1])  # differs from the generators of the epochs
        return _held_out_of_training(store, dataset, rng, unseen, clicked)
    judged = {
        query: [row_of[passage] for passage, relevance in passages.items() if relevance > 0]
        for query, passages in dataset.split(split).items()
    }
    judged = {query: passages for query, passages in judged.items() if passages}
    if not judged:
        raise GnnRetrievalError(f"{dataset.path}: no query of split {split!r} has a relevant passage.")
    with store.texts() as texts:
        shared = np.array([query in judged for query in texts.query_ids()])
    if shared.all():
        raise GnnRetrievalError(
            f"{store.path}: built from the queries of split {split!r}, which training needs as dev questions. "
            "Build the graph from the train split."
        )
    vectors = features.queries[features.rows_of(judged)]
    text_of = {query.id: query.text for query in dataset.queries_of(split)}
    dev_texts, relevant = [text_of[query] for query in judged], list(judged.values())
    # a query of both splits must not be in the graph of training
    return HeldOut(
        split,
        list(judged),
        vectors,
        dev_texts,
        relevant,
        shared if shared.any() else None,
        np.zeros(len(judged), dtype=np.int64),
        None if clicks is None else clicked_questions(clicks, split, row_of, judged),
        clicked,
    )


def _held_out_of_training(
    store: Graph,
    dataset: Dataset,
    rng: np.random.Generator,
    unseen: NDArray[np.bool_] | None,
    clicked: ClickedQuestions | None,
) -> HeldOut:
    labelled = np.unique(store.labels[:, 0])
    labels = np.stack([np.searchsorted(labelled, store.labels[:, 0]), store.labels[:, 1]], axis=1)
    by_passage = mask_queries(len(labelled), labels, _share(len(labelled)), "passage", rng)
    by_topic = _of_topics(store, labels, len(labelled), rng)
    if (by_passage | by_topic).all():  # too few questions for both kinds
        by_topic[:] = False
    by_question, copies = _single_questions(store, labelled, by_passage | by_topic, rng)
    new = np.ones(len(labelled), dtype=bool) if unseen is None else unseen[labelled]
    if by_passage.all() or not (by_passage & new).any():
        raise GnnRetrievalError(
            f"{dataset.path}: there is no dev split, and too few training queries to hold some out: add one."
        )
    is_dev = np.zeros(store.num_queries, dtype=bool)
    is_dev[labelled[by_passage | by_topic | by_question]] = True
    hidden = is_dev.copy()
    hidden[labelled[copies]] = True
    is_dev &= True if unseen is None else unseen
    rows = np.flatnonzero(is_dev)
    relevant = passages_by_query(store.labels[is_dev[store.labels[:, 0]]])
    with store.texts() as texts:
        held_out = [texts.query(row) for row in rows.tolist()]
    parts = np.select([by_question, by_topic], [BY_QUESTION, BY_TOPIC], BY_PASSAGE)[is_dev[labelled]]
    return HeldOut(
        HELD_OUT_NAME,
        [query.id for query in held_out],
        store.query_features[rows],
        [query.text for query in held_out],
        [*relevant.values()],
        hidden,
        parts,
        None if clicked is None else clicked.only(rows.tolist()),
        clicked,
    )


def _share(num_queries: int) -> float:
    """Share of the training queries to hold out for each kind."""
    return min(HELD_OUT, MOST_HELD_OUT / max(num_queries, 1))


def _of_topics(store: Graph, labels: Rows, num_queries: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Mask ``(num_queries,)`` of all queries of some topics, about as many as are held out by passage."""
    wanted, size = max(1, round(_share(num_queries) * num_queries)), min(TOPIC, max(1, store.num_passages // 100))
    seeds = rng.permutation(np.unique(labels[:, 1]))
    chosen = np.zeros(num_queries, dtype=bool)
    for start in range(0, len(seeds), _SEEDS):
        vectors = gather_rows(store.passage_features, seeds[start : start + _SEEDS])
        alike, _ = exact_top_k(vectors, store.passage_features, size, store.similarity)
        for passages in alike:
            if chosen.sum() >= wanted:
                return chosen
            chosen[labels[np.isin(labels[:, 1], passages), 0]] = True
    return chosen


def _single_questions(
    store: Graph, labelled: NDArray[np.int64], taken: NDArray[np.bool_], rng: np.random.Generator
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Masks of single questions that are not ``taken``, and of their copies, which would give the answer away."""
    first = first_copies(store.query_features, labelled)
    wanted = round(_share(len(labelled)) * len(labelled))
    left = rng.permutation(np.flatnonzero(~taken & (first == labelled)))[:wanted]
    chosen = np.zeros(len(labelled), dtype=bool)
    chosen[left] = True
    return chosen, np.isin(first, labelled[left]) & ~chosen


def first_copies(vectors: NDArray[np.floating], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each of these rows of vectors the first with the same vector ``(r,)``: the same text under another id."""
    first = dict[int, int]()  # by hash: vectors themselves would take the memory of all
    found = np.empty(len(rows), dtype=np.int64)
    for part in blocks(len(rows), _ROWS):
        gathered = gather_rows(vectors, rows[part], vectors.dtype)
        found[part] = [
            first.setdefault(hash(vector.tobytes()), row)
            for vector, row in zip(gathered, rows[part].tolist(), strict=True)
        ]
    return found


def passages_by_query(labels: Rows) -> dict[int, list[int]]:
    """Rows of the relevant passages by query row, from labels ``(L, 2)`` (query row, passage row)."""
    relevant: dict[int, list[int]] = {}
    for query, passage in labels.tolist():
        relevant.setdefault(query, []).append(passage)
    return relevant
