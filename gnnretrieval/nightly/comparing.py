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
from gnnretrieval.feedback.importing import open_feedback
from gnnretrieval.feedback.judgement_table import read_judgements
from gnnretrieval.feedback.time_splits import TEST
from gnnretrieval.graph.store import Graph
from gnnretrieval.nightly.gate import GateFigures, feedback_slices, judge_gain, popularity_slices
from gnnretrieval.nightly.held_out import HeldOutQuestions, RanksOfModel, ShownPassage
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
    """The gate's comparison on the newest questions of ``dataset``, its test split; and those that moved most.

    Args:
        dataset: The candidate's, made from event logs.
        features: The candidate's.
        graph: The candidate's.
        candidate: Embeddings of the new model.
        served: Vectors of the same passages by the served one.
        recipe: Settings of the gate.
    """
    row = {id_: number for number, id_ in enumerate(dataset.passage_ids)}
    shown = {
        query: [ShownPassage(row[one.passage], one.examined, one.is_relevant) for one in its]
        for query, its in read_judgements(dataset.path, TEST).items()
    }
    report = open_feedback(dataset.path).report
    has_lists = all(log.has_lists for log in report.logs)
    newest = HeldOutQuestions.of([*shown.values()], report.rates, recipe.feedback, has_lists)
    queries = np.asarray(features.queries[features.rows_of(shown)], dtype=np.float32)
    known = {one.id: (one.text, metadata) for one, metadata in read_queries(dataset.path / QUERIES)}
    asked = [int(known[query][1].get("impressions", 1)) for query in shown]
    labelled = np.zeros(graph.num_passages, dtype=np.bool_)
    labelled[graph.labels[:, 1]] = True
    slices = popularity_slices(asked) | feedback_slices(newest.relevant, labelled)
    new, old = (_ranks(newest, made.passages, made.similarity, queries) for made in (candidate, served))
    gate = judge_gain(new, old, slices, recipe.update, newest.weights)
    return gate, moved_most([known[query][0] for query in shown], new.whole, old.whole)


def _ranks(
    questions: HeldOutQuestions,
    vectors: NDArray[np.float16],
    similarity: Similarity,
    queries: NDArray[np.float32],
) -> RanksOfModel:
    prepared, asked = (torch.from_numpy(similarity.prepare_array(np.asarray(one))) for one in (vectors, queries))
    return questions.ranks(prepared, asked)
