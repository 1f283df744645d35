"""The comparison of a candidate with the served version, on the newest questions."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from gnnretrieval.data import Dataset
from gnnretrieval.data.beir import read_queries
from gnnretrieval.data.dataset import QUERIES
from gnnretrieval.encoders.features import Features
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.feedback.clicked_questions import ClickedQuestions, clicked_questions
from gnnretrieval.feedback.importing import open_feedback
from gnnretrieval.feedback.time_splits import TEST
from gnnretrieval.graph.store import Graph
from gnnretrieval.nightly.gate import GateFigures, RanksOfModel, feedback_slices, judge_gain, popularity_slices
from gnnretrieval.nightly.moved import MovedQuestion, moved_most
from gnnretrieval.recipes.recipe import Recipe
from gnnretrieval.training.gnn.embeddings import Embeddings


def compare_versions(
    dataset: Dataset,
    features: Features,
    graph: Graph,
    candidate: Embeddings,
    served: Embeddings | Features,
    recipe: Recipe,
) -> tuple[GateFigures, list[MovedQuestion]]:
    """The gate's comparison on the newest questions of ``dataset``, its test split, and the questions that moved most.

    Args:
        dataset: The candidate's, made from event logs.
        features: The candidate's.
        graph: The candidate's.
        candidate: Embeddings of the new model.
        served: Vectors of the same passages by the served model.
        recipe: Settings of the gate.
    """
    row_of = {id_: row for row, id_ in enumerate(dataset.passage_ids)}
    query_ids = [*dataset.split(TEST)] if TEST in dataset.splits else []
    newest = clicked_questions(open_feedback(dataset.path), TEST, row_of, query_ids)
    queries = np.asarray(features.queries[features.rows_of(query_ids)], dtype=np.float32)
    known = {query.id: (query.text, metadata) for query, metadata in read_queries(dataset.path / QUERIES)}
    impressions = [int(known[query][1].get("impressions", 1)) for query in query_ids]
    labelled = np.zeros(graph.num_passages, dtype=np.bool_)
    labelled[graph.labels[:, 1]] = True
    slices = popularity_slices(impressions) | feedback_slices(newest.relevant, labelled)
    new, old = (_ranks(newest, made.passages, made.similarity, queries) for made in (candidate, served))
    gate = judge_gain(new, old, slices, recipe.update, newest.weights)
    return gate, moved_most([known[query][0] for query in query_ids], new.whole, old.whole)


def _ranks(
    questions: ClickedQuestions,
    vectors: NDArray[np.float16],
    similarity: Similarity,
    queries: NDArray[np.float32],
) -> RanksOfModel:
    passages = torch.from_numpy(similarity.prepare_array(np.asarray(vectors)))
    return RanksOfModel.of(questions, passages, torch.from_numpy(similarity.prepare_array(queries)))
