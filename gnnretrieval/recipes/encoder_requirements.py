"""Checks before an encoder's recipe runs, for errors that would otherwise stop it after hours."""

from __future__ import annotations

from pathlib import Path

from gnnretrieval.data import Dataset
from gnnretrieval.data.answers import read_answers
from gnnretrieval.data.dataset import QUERIES
from gnnretrieval.data.runs.trec import require_writable_ids
from gnnretrieval.encoders.checkpoint import find_checkpoint
from gnnretrieval.errors import InputError
from gnnretrieval.evaluation import answered_queries, parse_measures, require_answers
from gnnretrieval.mining.pseudo_label import unjudged_queries
from gnnretrieval.recipes.encoder_recipe import EncoderRecipe, Stage
from gnnretrieval.training.encoder.dev import dev_queries
from gnnretrieval.training.gnn.held_out import dev_split

DEV = "dev"  # as the split of a stage of negatives: the dev split, whatever its name


def require_runnable(recipe: EncoderRecipe, dataset: Dataset, path: Path, small: bool = False) -> None:
    """Refuse a recipe that cannot finish on ``dataset``, or that would report on queries it trains on or chooses by.

    Args:
        recipe: The recipe.
        dataset: Its dataset.
        path: Its file.
        small: Whether its settings for small data are used.

    Raises:
        InputError: the reported split is the training or the dev split, or shares queries with one of them; a stage
            mines another split; the dev split is missing for a cross-encoder, or unjudged queries for pseudo-labels; a
            reader or an encoder of sentences has no answers to train on; a measure or a checkpoint is unknown, or an
            id does not fit into a TREC run.
        GnnRetrievalError: no query is left to choose an encoder's epoch by, or to train on.
    """
    reported, chosen_by = recipe.compare.split, dev_split(dataset)
    measures = parse_measures(recipe.compare.measures)
    if reported in (recipe.split, chosen_by):
        use = "trains the encoders" if reported == recipe.split else "is the dev split"
        raise InputError(f"split {reported!r} {use}, and cannot be reported on: give another compare.split.", path)
    judged = dataset.split(reported)
    for split in filter(None, (recipe.split, chosen_by)):
        if both := judged.keys() & dataset.split(split).keys():
            raise InputError(
                f"{len(both):,} queries, such as {min(both)!r}, are both in split {split!r} and in {reported!r}, which "
                "is reported on. Remove them from one of the splits.",
                dataset.path,
            )
    require_writable_ids([*dataset.passage_ids, *judged], dataset.path)
    require_answers(dataset, measures, judged)
    names, encoders = {stage.name for stage in recipe.stages}, recipe.encoders(small)
    for stage in recipe.stages:
        mined = recipe.settings_of(stage, small).split if stage.kind == "negatives" else None
        if stage.kind == "negatives" and mined not in (recipe.split, DEV):
            raise InputError(f"stage {stage.name!r} mines split {mined!r}: give {recipe.split!r} or {DEV!r}.", path)
        if stage.kind == "negatives" and mined == DEV and chosen_by is None:
            raise InputError(
                f"stage {stage.name!r} mines the dev split, and there is none: add qrels/dev.tsv.", dataset.path
            )
        if stage.kind == "pseudo-label" and not unjudged_queries(dataset)[0]:
            raise InputError(
                f"stage {stage.name!r} labels queries without judgements, and every query of queries.jsonl is judged, "
                "or has the text of a judged one. Add unlabelled ones, or leave the stage out (--only with an earlier "
                "stage).",
                dataset.path,
            )
        if stage.kind == "encoder":
            dev_queries(dataset, recipe.split, recipe.settings_of(stage, small).seed)
            if encoders[stage.name].sentences != "none":
                _require_sentences(recipe, stage, dataset, small)
        if stage.kind == "reader":
            for split in filter(None, (recipe.split, chosen_by)):
                answered_queries(dataset, split)
        if stage.cross_encoder is not None and stage.cross_encoder not in names:
            find_checkpoint(stage.cross_encoder)
    for name in _checkpoints(recipe, small):
        find_checkpoint(name)


def _require_sentences(recipe: EncoderRecipe, stage: Stage, dataset: Dataset, small: bool) -> None:
    """Refuse a stage that learns from sentences with answers, if no query has one."""
    if recipe.settings_of(stage, small).without_answer == "skip":
        answers = read_answers(dataset.path / QUERIES)
        if not any(query in answers for query in dataset.query_ids):
            raise InputError(
                f"stage {stage.name!r} learns from the sentences that have an answer, and no query has answers. Add "
                'them as metadata.answers, or set without_answer = "overlap" in [train] of the recipe.',
                dataset.path / QUERIES,
            )


def _checkpoints(recipe: EncoderRecipe, small: bool) -> set[str]:
    """Names of the checkpoints that the stages start from, and of the one that they are compared with."""
    starts = [stage for stage in recipe.stages if stage.kind == "encoder" and stage.start is None]
    encoders = [recipe.encoder_settings(small, stage) for stage in (None, *starts)]
    names = {name for encoder in encoders for name in (encoder.checkpoint, encoder.query_checkpoint)}
    return {name for name in (*names, recipe.cross_encoder_checkpoint) if name is not None}
