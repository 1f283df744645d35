"""An encoder's recipe: one TOML file whose stages train encoders, cross-encoders and readers, and mine examples."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.trained import completed_by
from gnnretrieval.errors import GnnRetrievalError, InputError, nearest
from gnnretrieval.mining.denoise import DenoiseSettings
from gnnretrieval.mining.negatives import NegativeSettings
from gnnretrieval.mining.pseudo_label import PseudoLabelSettings
from gnnretrieval.recipes.recipe import CompareSettings, DataSettings, lines_of_keys, read_toml
from gnnretrieval.settings import Settings
from gnnretrieval.training.encoder.settings import (
    CrossEncoderTrainSettings,
    DualEncoderTrainSettings,
    PretrainSettings,
    ReaderTrainSettings,
    require_fit,
)

BM25, START, LABELS = "bm25", "start", "labels"
METHODS = Path(__file__).resolve().parent / "encoders"
StageKind = Literal["pre-train", "encoder", "cross-encoder", "reader", "negatives", "denoise", "pseudo-label"]
FEATURES = "-features"  # suffix of the directory of a stage's features
_TAKEN = {BM25, START, LABELS, "rankings", "dataset"}
_USED: dict[str, set[str]] = {
    "pre-train": {"start"},
    "encoder": {"examples", "small_examples", "start", "encoder", "cross_encoder"},
    "cross-encoder": {"examples", "dev"},
    "reader": {"examples", "dev"},
    "negatives": {"by"},
    "denoise": {"examples", "cross_encoder"},
    "pseudo-label": {"by", "cross_encoder"},
}
_SETTINGS: dict[str, type[Settings]] = {
    "pre-train": PretrainSettings,
    "encoder": DualEncoderTrainSettings,
    "cross-encoder": CrossEncoderTrainSettings,
    "reader": ReaderTrainSettings,
    "negatives": NegativeSettings,
    "denoise": DenoiseSettings,
    "pseudo-label": PseudoLabelSettings,
}


class Stage(Settings):
    """One stage, which makes one artifact.

    Attributes:
        name: The stage's directory, and its name in later stages.
        kind: ``pre-train`` trains the checkpoint on passages alone; ``encoder``, ``cross-encoder`` and ``reader`` train
            a model on labels; ``negatives`` mines hard negatives; ``denoise`` filters them by a cross-encoder, and
            ``pseudo-label`` labels unjudged queries by one.
        by: What retrieves passages for ``negatives`` and ``pseudo-label``: ``bm25``, ``start`` (the checkpoint before
            training) or an encoder's stage.
        start: The stage of an encoder or of pre-training to continue training from; not given: the checkpoint.
        examples: Examples to train on: ``labels``, and stages of mined examples. For ``denoise``: the stage to filter.
        dev: Stage with mined examples of the dev split, for a ``cross-encoder`` or a ``reader``.
        cross_encoder: The cross-encoder that judges, or for an encoder, the one that is trained with it (RocketQAv2): a
            stage, or name or path of a checkpoint.
        settings: Settings that replace the recipe's settings of this kind.
        encoder: Settings that replace the recipe's settings of encoders.
        small: Settings that replace ``settings`` for small data.
        small_examples: Examples that an ``encoder`` is trained on in place of ``examples`` for small data; not given:
            the same.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")
    kind: StageKind
    by: str = START
    start: str | None = None
    examples: tuple[str, ...] = ()
    dev: str | None = None
    cross_encoder: str | None = None
    settings: Mapping[str, Any] = Field({})
    encoder: Mapping[str, Any] = Field({})
    small: Mapping[str, Any] = Field({})
    small_examples: tuple[str, ...] = ()

    def examples_of(self, small: bool) -> tuple[str, ...]:
        """The examples to train on."""
        return self.small_examples if small and self.small_examples else self.examples


class KindSettings(Settings):
    """Settings of the stages by kind; ``train`` has those of stages of kind ``encoder``."""

    pre_train: Mapping[str, Any] = Field({})
    train: Mapping[str, Any] = Field({})
    cross_encoder: Mapping[str, Any] = Field({})
    reader: Mapping[str, Any] = Field({})
    negatives: Mapping[str, Any] = Field({})
    denoise: Mapping[str, Any] = Field({})
    pseudo_label: Mapping[str, Any] = Field({})
    encoder: Mapping[str, Any] = Field({})

    def of(self, kind: str) -> Mapping[str, Any]:
        """The settings of stages of a kind."""
        settings: Mapping[str, Any] = getattr(self, "train" if kind == "encoder" else kind.replace("-", "_"))
        return settings


class EncoderRecipe(KindSettings):
    """A training method as a list of stages.

    Attributes:
        name: Name of the method.
        data: Where passages, queries and judgements come from.
        split: The split to train on.
        stages: The stages, in order.
        small: Settings for small data; with ``--small`` they replace the method's settings.
        compare: What the encoders are compared on.
        cross_encoder_checkpoint: Checkpoint that a cross-encoder starts from; not given: the encoder's checkpoint.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    data: DataSettings = DataSettings()
    split: str = "train"
    stages: tuple[Stage, ...] = Field(min_length=1)
    small: KindSettings = KindSettings()
    compare: CompareSettings = CompareSettings()
    cross_encoder_checkpoint: str | None = None

    @model_validator(mode="after")
    def _stages_build_on_earlier_ones(self) -> Self:
        if unused := self.compare.model_fields_set & {"fuse", "baselines"}:
            raise ValueError(f"[compare] of an encoder's recipe does not use {', '.join(sorted(unused))}: leave it out")
        kinds: dict[str, str] = {}
        for stage in self.stages:
            if stage.name in kinds or stage.name in _TAKEN or stage.name.endswith(FEATURES):
                raise ValueError(f"stage {stage.name!r}: the name is taken; choose another")
            _require_fields_of_kind(stage)
            _require_earlier_stages(stage, kinds)
            kinds[stage.name] = stage.kind
        return self

    def only(self, names: Collection[str]) -> Self:
        """The recipe with only the named stages and those that they build on.

        Raises:
            InputError: there is no such stage.
        """
        wanted, known = set(names), [stage.name for stage in self.stages]
        for name in names:
            if name not in known:
                raise InputError(f"there is no stage {name!r}.{nearest(name, known)} Stages: {', '.join(known)}.")
        for stage in reversed(self.stages):  # a stage builds only on earlier ones
            if stage.name in wanted:
                one = (stage.by, stage.start, stage.dev, stage.cross_encoder)
                wanted |= {str(name) for name in (*one, *stage.examples, *stage.small_examples)}
        return self.model_copy(update={"stages": tuple(stage for stage in self.stages if stage.name in wanted)})

    def learning_from(self, query_share: float) -> Self:
        """The recipe with another share of the training queries for its encoders.

        Raises:
            InputError: the share is not above 0 and at most 1.
        """
        share = {"query_share": query_share}
        DualEncoderTrainSettings.parse({**self.train, **share})
        stages = [
            stage.model_copy(update={"settings": {**stage.settings, **share}, "small": {**stage.small, **share}})
            if stage.kind == "encoder"
            else stage
            for stage in self.stages
        ]
        return self.model_copy(update={"stages": tuple(stages)})

    def encoder_settings(self, small: bool, stage: Stage | None = None) -> EncoderSettings:
        """Settings of encoders: the recipe's, or those of a stage."""
        own = stage.encoder if stage is not None else {}
        return EncoderSettings.parse({**self.encoder, **(self.small.encoder if small else {}), **own})

    def encoders(self, small: bool) -> dict[str, EncoderSettings]:
        """What each stage of kind ``encoder`` makes: as its settings say, else as the stage that it starts from."""
        made: dict[str, EncoderSettings] = {}
        for stage in self.stages:
            if stage.kind == "encoder":
                own, before = self.encoder_settings(small, stage), made.get(str(stage.start))
                made[stage.name] = own if before is None else completed_by(own, before.model_dump())
        return made

    def start_settings(self, small: bool) -> EncoderSettings:
        """Settings of the checkpoint before training: one vector per text, by its own similarity."""
        parts = {"sentences", "late_interaction", "token_match", "passage_vectors", "sparse", "own_terms"}
        compared = {"similarity", "scale", "query_max_tokens"}
        return EncoderSettings.parse(self.encoder_settings(small).model_dump(exclude=parts | compared))

    def settings_of(self, stage: Stage, small: bool, **more: Any) -> Any:
        """Settings of a stage: those of its kind, then those for small data, then the stage's, then ``more``.

        Negatives are mined for the recipe's split, unless the settings name another.
        """
        merged: dict[str, Any] = {"split": self.split} if stage.kind == "negatives" else {}
        merged |= self.of(stage.kind)
        merged |= self.small.of(stage.kind) if small else {}
        merged |= {**stage.settings, **(stage.small if small else {})}
        try:
            return _SETTINGS[stage.kind].parse({**merged, **more})
        except InputError as error:
            raise InputError(f"stage {stage.name!r}: {error}") from None


def _require_earlier_stages(stage: Stage, kinds: Mapping[str, str]) -> None:
    """Refuse a stage that builds on another than an earlier one of a fitting kind; ``kinds`` has the earlier ones."""
    examples = {"negatives", "denoise", "pseudo-label"}
    wanted: list[tuple[str, set[str], tuple[str, ...]]] = [  # field, kinds of stages, and names that are no stages
        ("examples", examples, (LABELS,) if stage.kind == "encoder" else ()),
        ("small_examples", examples, (LABELS,)),
        ("by", {"encoder"}, (BM25, START) if stage.kind == "negatives" else (START,)),
        ("start", {"encoder", "pre-train"}, ()),
        ("dev", examples, ()),
    ]
    for field, allowed, built_in in wanted:
        value = getattr(stage, field)
        for name in value if isinstance(value, tuple) else (value,):
            if name is not None and name not in built_in and kinds.get(name) not in allowed:
                possible = [other for other, kind in kinds.items() if kind in allowed] + list(built_in)
                raise ValueError(
                    f"stage {stage.name!r}: {field} names {name!r}, which is no earlier stage of kind "
                    f"{' or '.join(sorted(allowed))}.{nearest(name, possible)} Possible here: "
                    f"{', '.join(possible) or 'none'}"
                )


def _require_fields_of_kind(stage: Stage) -> None:
    """Refuse a stage that lacks a field its kind needs, or has one its kind does not use."""
    unused = stage.model_fields_set - {"name", "kind", "settings", "small"} - _USED[stage.kind]
    if unused:
        raise ValueError(f"stage {stage.name!r} of kind {stage.kind} does not use {', '.join(sorted(unused))}")
    needs: tuple[str, ...] = {
        "pre-train": (),
        "encoder": ("examples",),
        "cross-encoder": ("examples", "dev"),
        "reader": ("examples", "dev"),
        "negatives": (),
        "denoise": ("examples", "cross_encoder"),
        "pseudo-label": ("cross_encoder",),
    }[stage.kind]
    for field in needs:
        if not getattr(stage, field):
            raise ValueError(f"stage {stage.name!r} of kind {stage.kind} needs {field}")
    if stage.kind in ("cross-encoder", "reader", "denoise") and len(stage.examples) != 1:
        raise ValueError(f"stage {stage.name!r} of kind {stage.kind} takes the examples of one stage")


def _require_trainable(
    stage: Stage, settings: DualEncoderTrainSettings, encoder: EncoderSettings, separate: Set[str]
) -> None:
    """Refuse an encoder's stage whose settings do not fit; ``separate`` names the stages of two sets of weights."""
    try:
        require_fit(settings, encoder, is_joint=stage.cross_encoder is not None)
    except GnnRetrievalError as error:
        raise InputError(f"stage {stage.name!r}: {error}") from None
    if settings.shared and stage.start in separate:
        raise InputError(
            f"stage {stage.name!r} shares weights, and {stage.start!r}, from which it starts, has separate weights of "
            "queries and passages: give shared = false, or true to both."
        )


def _require_judged(stage: Stage, settings: DualEncoderTrainSettings, judged: Set[str]) -> None:
    """Refuse a stage that learns from a cross-encoder's probabilities, if none of its examples has them."""
    from gnnretrieval.losses.dual_encoder_loss import dual_encoder_losses  # importing torch takes a second

    if dual_encoder_losses()[settings.loss].is_distilled and not judged:
        raise InputError(
            f"stage {stage.name!r}: loss = {settings.loss} needs the cross-encoder's probabilities: give examples of a "
            "stage of kind denoise."
        )


def find_method(name: str) -> Path:
    """The recipe file of the method ``name``, or ``name`` as a path.

    Raises:
        InputError: ``name`` is neither a method nor a file.
    """
    methods = {path.stem: path for path in sorted(METHODS.glob("*.toml"))}
    if name in methods:
        return methods[name]
    path = Path(name)
    if not path.is_file():
        raise InputError(
            f"this is neither a recipe file nor a method.{nearest(name, methods)} Methods: {', '.join(methods)}.", path
        )
    return path


def read_encoder_recipe(path: str | Path) -> EncoderRecipe:
    """Read a recipe from a file, or by the name of its method, and check the settings of every stage.

    Raises:
        InputError: the file is not TOML, has an unknown key or a value that does not fit, or a stage builds on a stage
            that is not before it.
    """
    file = find_method(str(path))
    text, values = read_toml(file)
    recipe = EncoderRecipe.parse(values, file, lines_of_keys(text))
    try:
        for small in (False, True):
            recipe.encoder_settings(small)
            encoders, separate = recipe.encoders(small), set[str]()
            judged = {stage.name for stage in recipe.stages if stage.kind in ("denoise", "pseudo-label")}
            for stage in recipe.stages:
                by = encoders.get(stage.by)
                if stage.kind in ("negatives", "pseudo-label") and by is not None and by.sparse:
                    raise InputError(f"stage {stage.name!r}: {stage.by!r} is a sparse encoder, and by needs vectors.")
                more = {"cross_encoder": "one"} if stage.kind in ("denoise", "pseudo-label") else {}
                settings = recipe.settings_of(stage, small, **more)
                if stage.kind == "encoder":
                    _require_trainable(stage, settings, encoders[stage.name], separate)
                    _require_judged(stage, settings, judged.intersection(stage.examples_of(small)))
                    separate |= set() if settings.shared else {stage.name}
    except GnnRetrievalError as error:
        raise InputError(str(error), file) from None
    return recipe
