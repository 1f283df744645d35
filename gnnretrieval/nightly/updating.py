"""The nightly update: new events become labels, labels a new model, and the gate decides whether it is served."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from gnnretrieval.data import Dataset
from gnnretrieval.data.dataset import CORPUS
from gnnretrieval.data.formats.recognise import ALL_FORMATS
from gnnretrieval.data.records import Passage
from gnnretrieval.encoders.encoding_plan import with_absolute_paths
from gnnretrieval.encoders.features import Features
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.trained import trained_settings
from gnnretrieval.errors import ArtifactError, InputError, counted
from gnnretrieval.feedback.columns import require_fields
from gnnretrieval.feedback.events import open_logs
from gnnretrieval.feedback.importing import NoLabelsError, passages_source
from gnnretrieval.feedback.store import StoredFigures
from gnnretrieval.feedback.time_splits import TEST
from gnnretrieval.nightly.comparing import compare_versions
from gnnretrieval.nightly.gate import GateFigures, few_questions
from gnnretrieval.nightly.making import Maker, Version
from gnnretrieval.nightly.moved import write_moved
from gnnretrieval.nightly.report import Outcome, PassageFigures, Training, UpdateReport
from gnnretrieval.nightly.versions import END_OF_ROLLBACK, Versions
from gnnretrieval.nn.label_messages import Messages
from gnnretrieval.progress import say
from gnnretrieval.recipes.recipe import DOCSTRINGS, Recipe, read_recipe
from gnnretrieval.storage.durable import make_directory
from gnnretrieval.storage.provenance import sha256_of_file, sha256_of_json, write_json
from gnnretrieval.training.gnn.embeddings import Embeddings
from gnnretrieval.training.gnn.message_memory import fits_memory
from gnnretrieval.training.gnn.settings import as_before
from gnnretrieval.training.gnn.warm_start import grew_enough

CANDIDATE, PASSAGES = "candidate", "passages"  # what is made: a new model, and the old one over tonight's passages
LIVE = "-live"  # ending of the default directory


def update_search(
    path: str | Path,
    logs: Sequence[str | Path],
    *,
    out: str | Path | None = None,
    data: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    from_scratch: bool = False,
    dry_run: bool = False,
    device: str = "cpu",
    now: datetime | None = None,
) -> UpdateReport:
    """Update a search from event logs, and promote what is better by evidence. The same call goes on after a kill.

    New events go into the store in ``out``. All of its events become a dataset, split by time; the graph over its
    training questions equals one that is built from scratch. Training continues from the promoted model, or begins from
    scratch when the labels have grown enough. The gate compares both models on the newest questions
    (:func:`gnnretrieval.nightly.gate.judge_gain`). If it refuses the new model, the old model serves tonight's
    passages. A whole version in ``out/versions`` is promoted, in one step.

    Args:
        path: The recipe.
        logs: Event logs. They may overlap, and may have been read before.
        out: Directory of the search; None: beside the recipe, called ``NAME-live``.
        data: Dataset or file of tonight's passages, instead of the recipe's.
        columns: As in :func:`gnnretrieval.feedback.import_feedback`.
        from_scratch: Train from scratch.
        dry_run: Count what is new, and write nothing.
        device: Where to compute.
        now: The time from which ``keep_days`` counts; None: the current time.

    Returns:
        What was done, and why.

    Raises:
        InputError: the recipe, a log or the passages cannot be used, or there is no label yet and nothing is served.
        ArtifactError: another process updates the same search.
    """
    path = Path(path)
    recipe = read_recipe(path)
    _require_can_update(recipe, path)
    passages = _passages_of(recipe, path, data)
    require_fields(columns or {})
    opened = open_logs(logs, columns)
    run = Versions(out if out is not None else live_directory(path))
    night = _Night(run, recipe, passages, device, from_scratch)
    keep_from = _keep_from(recipe, now or datetime.now(UTC))
    if dry_run:
        return night.planned(run.store.add(opened, redact=recipe.update.redact, keep_from=keep_from, dry_run=True))
    with run.held():
        signed = len(run.ledger())
        stored = run.store.add(opened, redact=recipe.update.redact, keep_from=keep_from)
        too_old = f", {stored.too_old:,} older than keep_days" if stored.too_old else ""
        say(f"{run.path}: {counted(stored.added, 'new event')}{too_old}, {stored.stored:,} in the store")
        report = night.update(stored)
        if len(run.ledger()) > signed:  # the report of a line that an earlier update signed is not this one
            place = run.report_place(len(run.ledger()))
            make_directory(place.parent)
            write_json(place, report.as_json())
        return report


def live_directory(path: Path) -> Path:
    """Where the search of the recipe at ``path`` is, unless another directory is named."""
    return path.parent / f"{read_recipe(path).name}{LIVE}"


def _keep_from(recipe: Recipe, now: datetime) -> float | None:
    if recipe.update.keep_days is None:
        return None
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return (midnight - timedelta(days=recipe.update.keep_days)).timestamp()


def _require_can_update(recipe: Recipe, path: Path) -> None:
    """Refuse a recipe that cannot be updated night by night."""
    wrong = [
        (recipe.vectors is not None, "[vectors] come from a file, and new texts need an encoder: give an [encoder]."),
        (recipe.joint is not None, "[joint] trains the encoder, which would change every vector: leave it out."),
        (
            recipe.train.layer != "linear" or recipe.train.is_joint,
            "update trains layer = linear with mode = frozen: leave the others out of [train].",
        ),
        (recipe.graph.takes_run, "edges = run needs a run for every new question: choose other edges in [graph]."),
        (
            recipe.graph.edge_vectors == "file",
            "edge_vectors = file has none for new questions: leave it out of [graph].",
        ),
        (
            recipe.graph.split != "train",
            "update makes its own splits, and trains on train: leave split out of [graph].",
        ),
        (bool(recipe.data.where), "update takes all passages: leave where out of [data]."),
        (bool(recipe.data.files), "update takes passages from a dataset or one file: give it as source or by --data."),
    ]
    for is_wrong, sentence in wrong:
        if is_wrong:
            raise InputError(sentence, path)


def _passages_of(recipe: Recipe, path: Path, data: str | Path | None) -> Path:
    source = recipe.data.source
    if data is None and (source is None or source in DOCSTRINGS):
        raise InputError("the recipe names no passages: give a dataset or a file of passages with --data.", path)
    return Path(data) if data is not None else path.parent / str(source)


class _Tonight(NamedTuple):
    """What an update begins with.

    Attributes:
        stored: Events of the logs and of the store.
        passages: How tonight's passages differ from the promoted ones.
        before: Number of the promoted version; None: there is none.
    """

    stored: StoredFigures
    passages: PassageFigures
    before: int | None


class _Night:
    """One update of a search."""

    def __init__(self, run: Versions, recipe: Recipe, passages: Path, device: str, from_scratch: bool) -> None:
        self.run, self.recipe, self.from_scratch = run, recipe, from_scratch
        self.maker = Maker(recipe, passages, device)
        self.source = passages_source(passages)
        self.has_old_model = False  # whether the old model over tonight's passages is made

    def planned(self, stored: StoredFigures) -> UpdateReport:
        """The report of a dry run."""
        promoted = self.run.promoted
        reasons = [] if stored.added else ["The logs have no new event."]
        tonight = _Tonight(stored, self._new_passages(promoted), promoted)
        return self._report("dry run", tonight, promoted, reasons=reasons)

    def update(self, stored: StoredFigures) -> UpdateReport:
        """Make, compare and promote."""
        run, before = self.run, self.run.promoted
        forgets = before is not None and run.is_forgotten(before)
        tonight = _Tonight(stored, self._new_passages(before), before)
        state = self._state  # taken now: passages that change during the update are then new to the next one
        # What was judged during a rollback is judged again after its end, when it can be promoted.
        last = next((line for line in reversed(run.ledger()) if line["action"] in ("update", END_OF_ROLLBACK)), None)
        is_same = last is not None and last.get("state") == state
        # after a rollback, the promoted version may have the passages of another night
        if is_same and not tonight.passages.differ and not forgets and not self.from_scratch:
            reasons = ["There is no new event, no other passage and no other setting since the last update."]
            return self._tidy(self._report("nothing", tonight, before, reasons=[*reasons, *self._held_by()]))
        served = None if before is None else Version.open(run.place(before))
        if served is not None:
            self._require_same_encoder(served)
        return self._tidy(self._with_events(tonight, served, forgets))

    def _tidy(self, report: UpdateReport) -> UpdateReport:
        """The report, after unfinished and old versions were deleted; a killed update may have left some."""
        self.run.clear()
        return report.model_copy(update={"deleted": self.run.prune(self.recipe.update.versions)})

    def _with_events(self, tonight: _Tonight, served: Version | None, forgets: bool) -> UpdateReport:
        maker, run = self.maker, self.run
        made = run.making(CANDIDATE)
        make_directory(made)
        try:
            dataset = maker.dataset(run.store, made / "dataset")
        except NoLabelsError as error:
            if served is None:
                raise
            if forgets:
                raise self._nothing_left(served, error) from None
            return self._old_model(tonight, served, None, [f"There is nothing to train on: {error.says}"], {})
        few = self._too_few(dataset)
        if few and served is not None and not forgets and not self.from_scratch:
            return self._old_model(tonight, served, None, few, {})
        features, graph = maker.graph(dataset, made, served, forgets=forgets)
        whole = forgets or self._begins_again(served, len(graph.labels)) or not fits_memory(graph)
        if served is not None and not whole and served.model.load_messages().messages == Messages():
            reason = "The served model is the dual-encoder. Training begins when the labels have grown by a quarter."
            return self._old_model(tonight, served, None, [reason], {})
        training: Training
        if few and served is None:
            training, model = "none", maker.dual_encoder(dataset, features, graph, made)
        elif whole or served is None:
            training, model = "from scratch", maker.train(dataset, features, graph, made)
        else:
            training, model = "warm start", maker.go_on(dataset, features, graph, made, served)
        embeddings = maker.index(features, graph, model, made)
        questions = len(dataset.split(self.recipe.graph.split))
        figures = {"training": training, "labels": len(graph.labels), "questions": questions}
        if forgets:
            reasons = ["No version has the events that were to be forgotten."]
            return self._promoted("without forgotten events", CANDIDATE, tonight, None, reasons, figures)
        # both models rank tonight's passages, so that the gate compares models and not passages
        vectors: Embeddings | Features = features
        if served is not None:
            old = run.making(PASSAGES)
            vectors = maker.old_model(served, old, features) if tonight.passages.differ else served.embeddings
            self.has_old_model = tonight.passages.differ
        with maker.step("gate"):
            gate, moved = compare_versions(dataset, features, graph, embeddings, vectors, self.recipe)
            write_moved(moved if gate.promotes else [], made)
        if served is not None and gate.promotes and not run.is_rolled_back:
            return self._promoted("new model", CANDIDATE, tonight, gate, gate.reasons, figures)
        if served is not None:
            return self._old_model(tonight, served, gate, gate.reasons, figures)
        if not gate.promotes and training != "none":
            model = maker.dual_encoder(dataset, features, graph, made)
            maker.index(features, graph, model, made)
        said = "It has a new model." if gate.promotes else "It ranks as the dual-encoder, until clicks show more."
        return self._promoted("first version", CANDIDATE, tonight, gate, [said, *gate.reasons], figures)

    def _too_few(self, dataset: Dataset) -> list[str]:
        """Why nothing is trained; empty if there are enough held-out questions for the gate."""
        count = len(dataset.split(TEST)) if TEST in dataset.splits else 0
        least = self.recipe.update.least
        return [] if count >= least else [few_questions(count, least)]

    def _nothing_left(self, served: Version, error: NoLabelsError) -> NoLabelsError:
        """The error to raise, after all versions with forgotten events but the promoted one were deleted."""
        self.run.clear()
        self.run.prune(self.recipe.update.versions)
        return NoLabelsError(
            f"{error.says} Without the forgotten events no version can be made. {served.path} still has them, and is "
            f"still served: give logs with other clicks, or stop the server and delete {self.run.path}."
        )

    def _old_model(
        self,
        tonight: _Tonight,
        served: Version,
        gate: GateFigures | None,
        reasons: list[str],
        figures: dict[str, Any],
    ) -> UpdateReport:
        """The old model stays, and serves tonight's passages."""
        reasons, before = [*reasons, *self._held_by()], tonight.before
        if tonight.passages.differ:
            if not self.has_old_model:  # what a killed update left may be half of it, or have other passages
                self.maker.old_model(served, self.run.making(PASSAGES), None)
            return self._promoted("passages only", PASSAGES, tonight, gate, reasons, figures)
        self.run.sign("update", version=None, outcome="nothing", promoted=before, **self._signed(gate, figures))
        return self._report("nothing", tonight, before, gate=gate, reasons=reasons, **figures)

    def _held_by(self) -> list[str]:
        """The sentence about a rollback that is not ended; empty without one."""
        if not self.run.is_rolled_back:
            return []
        return [
            "The search was rolled back: no new model is promoted until a person ends that "
            f"(gnnretrieval rollback {self.run.path} --end)."
        ]

    def _promoted(
        self,
        outcome: Outcome,
        name: str,
        tonight: _Tonight,
        gate: GateFigures | None,
        reasons: list[str],
        figures: dict[str, Any],
    ) -> UpdateReport:
        number = self.run.put(name, {"outcome": outcome, **self._signed(gate, figures)})
        return self._report(outcome, tonight, number, gate=gate, reasons=reasons, **figures)

    def _signed(self, gate: GateFigures | None, figures: dict[str, Any]) -> dict[str, Any]:
        """Entries of an update in the ledger, besides its outcome."""
        entries = {"state": self._state, "epoch": self.run.store.epoch, "recipe": self._settings(), **figures}
        if self.run.is_rolled_back:
            entries["rolled_back"] = True
        if gate is not None:
            names = ("questions", "served", "candidate", "gain", "low", "p", "doubt", "promotes", "reasons")
            entries["gate"] = {name: getattr(gate, name) for name in names}
        return entries

    def _report(
        self,
        outcome: Outcome,
        tonight: _Tonight,
        version: int | None,
        *,
        gate: GateFigures | None = None,
        reasons: list[str],
        training: Training = "none",
        labels: int = 0,
        questions: int = 0,
    ) -> UpdateReport:
        return UpdateReport(
            outcome=outcome,
            version=version,
            before=tonight.before,
            events=tonight.stored,
            passages=tonight.passages,
            training=training,
            questions=questions,
            labels=labels,
            encoded=self.maker.encoded,
            gate=gate,
            reasons=reasons,
            deleted=[],
            seconds={name: round(value, 1) for name, value in self.maker.seconds.items()},
        )

    def _begins_again(self, served: Version | None, labels: int) -> bool:
        """Whether training begins from scratch."""
        if served is None or self.from_scratch:
            return True
        epoch, settings = self.run.store.epoch, self._settings()
        from_scratch = (
            line
            for line in reversed(self.run.ledger())
            if line.get("training") == "from scratch" and line["epoch"] == epoch and line["recipe"] == settings
        )
        last = next(from_scratch, None)
        if last is None:
            return True
        return grew_enough(labels, int(last["labels"]), served.model.load_messages(), self.recipe.update.growth)

    def _settings(self) -> str:
        """Hash of the settings that a model is trained by."""
        names = ("encoder", "graph", "train", "feedback")
        return sha256_of_json({name: as_before(getattr(self.recipe, name).model_dump(mode="json")) for name in names})

    @cached_property
    def _state(self) -> str:
        """Hash of all that an update is made from."""
        return sha256_of_json(
            {
                "events": self.run.store.hash,
                "passages": sha256_of_file(self.source[0]),
                "settings": self._settings(),
                "gate": self.recipe.update.model_dump(mode="json"),
            }
        )

    def _new_passages(self, promoted: int | None) -> PassageFigures:
        """How tonight's passages differ from the promoted ones."""
        place, format_ = self.source
        now = _text_hashes(place, format_)
        before = {} if promoted is None else _text_hashes(self.run.place(promoted) / "dataset" / CORPUS, "beir-corpus")
        return PassageFigures(
            passages=len(now),
            new=len(now.keys() - before.keys()),
            changed=sum(before.get(id_, text) != text for id_, text in now.items()),
            removed=len(before.keys() - now.keys()),
            in_other_order=promoted is not None and now.keys() == before.keys() and [*now] != [*before],
        )

    def _require_same_encoder(self, served: Version) -> None:
        was = EncoderSettings.parse(served.features.meta["encoder"])
        now = with_absolute_paths(trained_settings(self.recipe.encoder))
        left_out = {"token_budget", "window", "api"}
        if was.model_dump(exclude=left_out) != now.model_dump(exclude=left_out):
            raise ArtifactError(
                f"{served.path}: its vectors are by another encoder than the recipe's. Update into another directory "
                "(--out), or restore the encoder in the recipe."
            )


def _text_hashes(path: Path, format_: str) -> dict[str, bytes]:
    """Hash of each passage's text by its id, as an import reads it."""
    hashes: dict[str, bytes] = {}
    for parsed in ALL_FORMATS[format_].read(path, ""):
        passage = parsed.record
        if isinstance(passage, Passage) and passage.full_text.strip():
            hashes.setdefault(passage.id, hashlib.blake2b(passage.full_text.encode(), digest_size=16).digest())
    return hashes
