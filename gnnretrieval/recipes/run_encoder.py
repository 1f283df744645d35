"""Run an encoder's recipe: make every stage in order, reusing artifacts, and compare the encoders."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from gnnretrieval.data import Dataset
from gnnretrieval.data.runs.trec import Run, read_run, write_run
from gnnretrieval.encoders.bm25 import BM25
from gnnretrieval.encoders.features import Features, encode_dataset
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.sparse_features import SparseFeatures, encode_sparse
from gnnretrieval.encoders.trained import trained_settings
from gnnretrieval.evaluation import (
    AnswerHits,
    Comparison,
    compare,
    find_answers,
    leave_out_self,
    parse_measures,
)
from gnnretrieval.index.search import bm25_run
from gnnretrieval.index.sentence_search import features_run
from gnnretrieval.mining import denoise, mine_negatives, pseudo_label
from gnnretrieval.mining.examples import Examples
from gnnretrieval.recipes.encoder_recipe import BM25 as BY_BM25
from gnnretrieval.recipes.encoder_recipe import (
    FEATURES,
    LABELS,
    START,
    EncoderRecipe,
    Stage,
    find_method,
    read_encoder_recipe,
)
from gnnretrieval.recipes.encoder_requirements import DEV, require_runnable
from gnnretrieval.recipes.run import dataset_of
from gnnretrieval.recipes.stages import timed_stage, write_comparison
from gnnretrieval.storage.artifacts import Artifact
from gnnretrieval.storage.making import make_artifact
from gnnretrieval.storage.provenance import git_revision, library_versions
from gnnretrieval.training.encoder.train_cross_encoder import train_cross_encoder
from gnnretrieval.training.encoder.train_encoder import train_dual_encoder
from gnnretrieval.training.encoder.train_pretrained import pretrain
from gnnretrieval.training.encoder.train_reader import train_reader
from gnnretrieval.training.gnn.held_out import dev_split
from gnnretrieval.training.ranks import ALONE, Ranks

_TRAINED = ("pre-train", "encoder", "cross-encoder", "reader")  # kinds of stages that all processes take part in


class EncoderRun(NamedTuple):
    """What an encoder's recipe made.

    Attributes:
        directory: Directory of the run, with one directory per stage.
        made: Artifact by name of its stage.
        comparison: The encoders compared with BM25 and the checkpoint before training.
        dataset: The dataset.
        runs: Run by system.
        answers: Retrieved passages that contain an answer; empty where no measure looks at answers.
    """

    directory: Path
    made: dict[str, Artifact]
    comparison: Comparison
    dataset: Dataset
    runs: dict[str, Run]
    answers: AnswerHits


def run_encoder_recipe(
    recipe: str | Path,
    out: str | Path,
    *,
    data: str | Path | None = None,
    small: bool = False,
    only: Collection[str] = (),
    query_share: float | None = None,
    device: str = "cpu",
    ranks: Ranks = ALONE,
) -> EncoderRun | None:
    """Make every stage of a recipe in the directory ``out``; after an interruption, the same call continues.

    Args:
        recipe: A method's name, or a TOML file.
        out: Where everything goes.
        data: Dataset directory, instead of the recipe's.
        small: Use the recipe's settings for small data.
        only: Make only these stages and those that they build on; empty: all.
        query_share: Share of the training queries that encoders train on, instead of the recipe's; the others are left
            for a graph over these encoders.
        device: Where to compute.
        ranks: The processes that train together; the first one does everything else.

    Returns:
        What was made; None on every process but the first.

    Raises:
        GnnRetrievalError: a stage fails, or its input is wrong.
    """
    path = find_method(str(recipe))
    parsed = read_encoder_recipe(path)
    if only:
        parsed = parsed.only(only)
    if query_share is not None:
        parsed = parsed.learning_from(query_share)
    if not ranks.first:
        ranks.agree(None)  # wait until the first process has made the data
    dataset = dataset_of(parsed.data, path, data, Path(out))
    if ranks.first:
        ranks.agree(None)
    require_runnable(parsed, dataset, path, small)
    run = _Run(parsed, dataset, Path(out), small, device, ranks)
    if not ranks.first:
        run.join_in()
        return None
    for stage in parsed.stages:
        run.make(stage)
    ranks.agree(None)  # tell the other processes that all is made
    return run.compared()


class _Run:
    """A run of a recipe, and the stages that it has made."""

    def __init__(
        self,
        recipe: EncoderRecipe,
        dataset: Dataset,
        out: Path,
        small: bool,
        device: str,
        ranks: Ranks,
    ) -> None:
        self.recipe, self.dataset, self.out, self.small = recipe, dataset, out, small
        self.device, self.ranks = device, ranks
        self.by_name = {stage.name: stage for stage in recipe.stages}
        self.made: dict[str, Artifact] = {}

    @property
    def _common(self) -> dict[str, Any]:
        return {"device": self.device, "overwrite": True}

    def join_in(self) -> None:
        """Take part in every training of the first process, until everything is made."""
        while (name := self.ranks.agree(None)) is not None:
            self._train(self.by_name[name])

    def make(self, stage: Stage) -> None:
        """Make a stage's artifact, or reuse it."""
        with timed_stage(stage.name):
            self.made[stage.name] = self._train(stage) if stage.kind in _TRAINED else self._mine(stage)

    def _train(self, stage: Stage) -> Artifact:
        settings = self.recipe.settings_of(stage, self.small)
        place = self.out / stage.name
        common = {**self._common, "ranks": self.ranks.calling(stage.name)}
        if stage.kind == "pre-train":
            encoder = self._start_of(stage, self.recipe.start_settings(self.small))
            return pretrain(self.dataset, encoder, settings, place, **common)
        if stage.kind != "encoder":
            checkpoint = self.recipe.encoder_settings(self.small).checkpoint
            examples, dev = self._examples(stage.examples[0]), self._examples(str(stage.dev))
            if stage.kind == "reader":
                return train_reader(self.dataset, examples, dev, checkpoint, settings, place, **common)
            checkpoint = self.recipe.cross_encoder_checkpoint or checkpoint
            return train_cross_encoder(self.dataset, examples, dev, checkpoint, settings, place, **common)
        examples_of = stage.examples_of(self.small)
        return train_dual_encoder(
            self.dataset,
            [self._examples(name) for name in examples_of if name != LABELS],
            self._start_of(stage, self.recipe.encoder_settings(self.small, stage)),
            settings,
            place,
            labels=LABELS in examples_of,
            cross_encoder=self._cross_encoder(stage),
            split=self.recipe.split,
            **common,
        )

    def _start_of(self, stage: Stage, encoder: EncoderSettings) -> EncoderSettings:
        """The encoder that a stage continues to train: another stage's, or the recipe's checkpoint."""
        if stage.start is None:
            return encoder
        return encoder.model_copy(update={"checkpoint": str(self.out / stage.start), "query_checkpoint": None})

    def _cross_encoder(self, stage: Stage) -> str | None:
        """Path or name of a stage's cross-encoder."""
        trained_here = stage.cross_encoder in self.by_name
        return str(self.out / str(stage.cross_encoder)) if trained_here else stage.cross_encoder

    def _examples(self, name: str) -> Examples:
        from gnnretrieval.mining.examples import open_examples

        return open_examples(self.out / name)

    def _mine(self, stage: Stage) -> Examples:
        place = self.out / stage.name
        if stage.kind == "negatives":
            settings = self.recipe.settings_of(stage, self.small)
            if settings.split == DEV:
                settings = settings.model_copy(update={"split": dev_split(self.dataset)})
            features = None if stage.by == BY_BM25 else self.features(stage.by)
            return mine_negatives(self.dataset, settings, place, features=features, **self._common)
        judge = {} if stage.cross_encoder is None else {"cross_encoder": self._cross_encoder(stage)}
        settings = self.recipe.settings_of(stage, self.small, **judge)
        if stage.kind == "denoise":
            return denoise(self.dataset, self._examples(stage.examples[0]), settings, place, **self._common)
        return pseudo_label(self.dataset, self.features(stage.by), settings, place, **self._common)

    def features(self, name: str) -> Features:
        """Vectors by the encoder of a stage, or by the checkpoint before training."""
        features = self.encoded(name)
        assert isinstance(features, Features)  # checked when the recipe was read
        return features

    def encoded(self, name: str) -> Features | SparseFeatures:
        """Vectors or weights of terms by the encoder of a stage, or by the checkpoint before training."""
        if name == START:
            settings = self.recipe.start_settings(self.small)
        else:
            wanted = self.recipe.encoder_settings(self.small, self.by_name[name])
            settings = wanted.for_checkpoint(self.out / name)
            if trained_settings(settings).sparse:
                return encode_sparse(self.dataset, settings, self.out / f"{name}{FEATURES}", **self._common)
        return encode_dataset(self.dataset, settings, self.out / f"{name}{FEATURES}", **self._common)

    def compared(self) -> EncoderRun:
        """Compare every encoder with BM25 and the checkpoint before training, on the reported split."""
        split, depth = self.recipe.compare.split, self.recipe.compare.depth
        judged = self.dataset.split(split)
        names = [START, *(stage.name for stage in self.recipe.stages if stage.kind == "encoder")]
        with timed_stage("rankings"):
            features = {name: self.encoded(name) for name in names}

            def write(target: Path) -> dict[str, Any]:
                queries = {query.id: query.text for query in self.dataset.queries_of(split)}
                bm25 = BM25(
                    (passage.full_text for passage in self.dataset.passages()), total=len(self.dataset.passage_ids)
                )
                by_words = bm25_run(bm25, queries, self.dataset.passage_ids, depth)
                write_run(target / f"{BY_BM25}.run", by_words, BY_BM25, may_be_empty=True)
                for name, encoded in features.items():
                    write_run(target / f"{name}.run", features_run(encoded, list(queries), depth), name)
                return {"split": split, "queries": len(queries)}

            rankings = make_artifact(
                self.out / "rankings",
                "rankings",
                inputs={"dataset": self.dataset.hash} | {name: encoded.hash for name, encoded in features.items()},
                config={"split": split, "depth": depth},
                write=write,
                overwrite=True,
            )
        runs = {name: read_run(rankings.path / f"{name}.run", may_be_empty=True) for name in (BY_BM25, *names)}
        runs, self_excluded = leave_out_self(runs, self.dataset.path, judged)
        measures = parse_measures(self.recipe.compare.measures)
        answers = find_answers(self.dataset, runs.values(), measures, judged)
        provenance = {
            "recipe": self.recipe.model_dump(mode="json"),
            "small": self.small,
            "self_excluded": self_excluded,
            "dataset": self.dataset.provenance(),
            "artifacts": {name: {"hash": artifact.hash} for name, artifact in self.made.items()},
            "dev": {name: artifact.meta["dev"] for name, artifact in self.made.items() if "dev" in artifact.meta},
            "versions": library_versions(),
            "git_revision": git_revision(),
        }
        comparison = compare(judged, runs, START, measures, split, provenance, answers=answers)
        write_comparison(comparison, self.out / "comparison")
        return EncoderRun(self.out, self.made, comparison, self.dataset, runs, answers)
