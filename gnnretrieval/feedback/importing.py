"""Import event logs into a dataset directory: questions, judgements by clicks, and splits by time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from gnnretrieval.data.beir import write_passages, write_qrels, write_queries
from gnnretrieval.data.dataset import CORPUS, QUERIES
from gnnretrieval.data.formats.recognise import ALL_FORMATS, recognise
from gnnretrieval.data.inspection.same_text import text_key
from gnnretrieval.data.records import Passage, Qrel, Query
from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.feedback.cleaning import Cleaned, Impression, clean
from gnnretrieval.feedback.click_rates import ClickRates, click_rates, count_votes
from gnnretrieval.feedback.columns import require_fields
from gnnretrieval.feedback.events import EventLog, Log, open_logs
from gnnretrieval.feedback.judgement_table import write_judgements
from gnnretrieval.feedback.judging import Judgement, judge
from gnnretrieval.feedback.propensities import Propensities, estimate_propensities
from gnnretrieval.feedback.report import FeedbackReport, LogFigures, SplitJudgements, warnings_of
from gnnretrieval.feedback.settings import FeedbackSettings
from gnnretrieval.feedback.time_splits import TRAIN, Boundaries, Split, as_date, boundaries, drift, split_by_time
from gnnretrieval.progress import say
from gnnretrieval.storage.artifacts import Artifact, open_artifact
from gnnretrieval.storage.making import make_artifact
from gnnretrieval.storage.provenance import sha256_of_file, write_json

KIND = "dataset"
REPORT = "report.json"


class NoLabelsError(InputError):
    """No event is left, or no passage is relevant by the clicks."""


class ImportedFeedback(Artifact):
    """A dataset directory made from event logs, with the report of the import."""

    @property
    def settings(self) -> FeedbackSettings:
        """Limits and thresholds that it was made with."""
        return FeedbackSettings.model_validate(
            {name: value for name, value in self.meta["config"].items() if name in FeedbackSettings.model_fields}
        )

    @property
    def report(self) -> FeedbackReport:
        """What was read, dropped, estimated and judged.

        Raises:
            ArtifactError: the report is damaged.
        """
        path = self.path / REPORT
        try:
            return FeedbackReport.model_validate_json(path.read_bytes())
        except (ValidationError, OSError):
            raise ArtifactError(f"{path}: this report is damaged or missing. Import the logs again.") from None


def open_feedback(path: str | Path) -> ImportedFeedback:
    """Open the dataset that :func:`import_feedback` made at ``path``.

    Raises:
        ArtifactError: it is no dataset, or was not made from event logs.
    """
    artifact = open_artifact(path, KIND)
    if artifact.meta["config"].get("source") != "event logs":
        raise ArtifactError(f"{path}: this dataset was not made by feedback import.")
    return ImportedFeedback(artifact.path, artifact.meta)


def import_feedback(
    logs: Sequence[str | Path | Log],
    passages: str | Path,
    out: str | Path,
    settings: FeedbackSettings | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    redact: bool = False,
    keep_from: datetime | None = None,
    dev_from: datetime | None = None,
    test_from: datetime | None = None,
    overwrite: bool = False,
) -> ImportedFeedback:
    """Make the dataset directory ``out`` from event logs of a search.

    Events of one session and question are one vote. Questions are merged by their text in Unicode's form NFKC, without
    case, surplus white space and end punctuation; the hash of that text is their id, the same in every import. Click
    rates are freed of position bias (:func:`~gnnretrieval.feedback.propensities.estimate_propensities`) and judged
    (:func:`~gnnretrieval.feedback.judging.judge`). ``qrels/SPLIT.tsv`` has the judgements of questions with a relevant
    passage: the click rate in tenths, from 1 to 10, and 0 for a passage that was often shown and never clicked.
    Training and measures by relevant passages treat all grades above 0 alike; nDCG counts them as gains.
    ``judgements.tsv`` has the unrounded figures, also of undecided pairs, and ``report.json`` the report.

    The order of logs and lines does not matter. Sessions are not written. The events are held in memory.

    Args:
        logs: Event logs: files of JSON lines, CSV, TSV or Parquet, plain or gzipped, or a store's logs
            (:class:`gnnretrieval.feedback.store.EventStore`).
        passages: A dataset directory, or a file of passages in any format that ``data import`` reads.
        out: Where the dataset goes.
        settings: Limits and thresholds.
        columns: Column by field (:data:`gnnretrieval.feedback.columns.FIELDS`), for columns without a usual name.
        redact: Mask e-mail addresses, phone, account and card numbers in questions, before anything is written.
        keep_from: Events before this time are dropped.
        dev_from: Start of the dev split; None: by ``dev_share``.
        test_from: Start of the test split; None: by ``test_share``.
        overwrite: Replace a dataset made from other logs.

    Returns:
        The dataset, with its report.

    Raises:
        InputError: a log or the passages cannot be read, a log has no usable event, or no passage is relevant.
    """
    settings = settings or FeedbackSettings()
    require_fields(columns or {})
    opened = open_logs(logs, columns)
    if not opened:
        raise InputError("there is no log to import: give one with events.")
    source = passages_source(Path(passages))
    times = [None if time is None else _seconds(time) for time in (keep_from, dev_from, test_from)]

    def write(directory: Path) -> Mapping[str, Any]:
        return _write(directory, opened, source, settings, redact, times)

    hashes = sorted((log.path.name, sha256_of_file(log.path)) for log in opened)
    inputs = {f"log {number} {name}": hash_ for number, (name, hash_) in enumerate(hashes, 1)}
    config = {
        "source": "event logs",
        "columns": dict(columns or {}),
        "redact": redact,
        **dict(zip(("keep_from", "dev_from", "test_from"), times, strict=True)),
        **settings.model_dump(mode="json"),
    }
    inputs["passages"] = sha256_of_file(source[0])
    made = make_artifact(out, KIND, inputs=inputs, config=config, write=write, overwrite=overwrite)
    return ImportedFeedback(made.path, made.meta)


def _seconds(time: datetime) -> float:
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def passages_source(path: Path) -> tuple[Path, str]:
    """File and format of the passages."""
    if path.is_dir():
        return path / CORPUS, "beir-corpus"
    format_ = recognise(path)
    if not ALL_FORMATS[format_].texts:
        raise InputError(f"this file has judgements ({format_}); wanted passages.", path)
    return path, format_


class JudgedImpressions(NamedTuple):
    """Impressions by split, and their judgements.

    Attributes:
        at: Starts of dev and test.
        split: The impressions by split.
        bias: Propensities of the positions, from train.
        rates: Click rates of train.
        judgements: Judgements by split.
    """

    at: Boundaries
    split: Split
    bias: Propensities
    rates: ClickRates
    judgements: dict[str, list[Judgement]]


def judge_impressions(
    impressions: Sequence[Impression],
    settings: FeedbackSettings,
    has_lists: bool = True,
    dev_from: float | None = None,
    test_from: float | None = None,
) -> JudgedImpressions:
    """Split impressions by time and judge them; position bias and click rates are estimated from train alone.

    Args:
        impressions: Votes in the order of their times.
        settings: Shares of the splits, and thresholds.
        has_lists: Whether the log also has shown passages without a click.
        dev_from: Start of dev, in seconds since 1970; None: by its share.
        test_from: Start of test, likewise.

    Raises:
        NoLabelsError: no impression is left for train.
        InputError: dev does not begin before test.
    """
    at = boundaries(impressions, settings, dev_from, test_from)
    split = split_by_time(impressions, at)
    bias = estimate_propensities(split.by_name[TRAIN]) if has_lists else Propensities(())
    votes = {name: count_votes(part, bias, has_lists) for name, part in split.by_name.items() if part}
    if TRAIN not in votes:
        raise NoLabelsError("no event is left before dev and test: give a later --dev-from, or smaller shares.")
    rates = click_rates(votes[TRAIN])
    judgements = {name: judge(of_split, rates, settings) for name, of_split in votes.items()}
    return JudgedImpressions(at, split, bias, rates, judgements)


class WrittenCorpus:
    """Writes the passages once, and keeps a hash of each text by passage id (``keys``)."""

    def __init__(self, source: tuple[Path, str], out: Path) -> None:
        self.keys: dict[str, int] = {}
        self._path, self._format = source
        write_passages(out, self._passages())
        if not self.keys:
            raise InputError("no passages in this file; wanted a dataset or a file of passages.", self._path)

    def _passages(self) -> Iterator[tuple[Passage, Mapping[str, Any]]]:
        for entry in ALL_FORMATS[self._format].read(self._path, ""):
            passage = entry.record
            if not isinstance(passage, Passage) or not passage.full_text.strip():
                continue
            if passage.id in self.keys:
                if ALL_FORMATS[self._format].repeats:
                    continue
                raise InputError(f"passage id {passage.id!r} is repeated: rename one.", self._path, entry.line)
            self.keys[passage.id] = text_key(passage.full_text)
            yield passage, entry.metadata


class _Question(NamedTuple):
    query: Query
    metadata: dict[str, Any]


def _write(
    directory: Path,
    logs: Sequence[Log],
    source: tuple[Path, str],
    settings: FeedbackSettings,
    redact: bool,
    times: Sequence[float | None],
) -> Mapping[str, Any]:
    corpus = WrittenCorpus(source, directory / CORPUS)
    keep_from, dev_from, test_from = times
    cleaned = _cleaned(logs, corpus, settings, redact, keep_from)
    has_lists = all(log.has_lists for log in logs) and not _holds_clicks_alone(cleaned)
    result = judge_impressions(cleaned.impressions, settings, has_lists, dev_from, test_from)
    judged = {name: _without_same_texts(pairs, corpus.keys) for name, pairs in result.judgements.items()}
    labelled = {name: with_relevant(pairs) for name, (pairs, _) in judged.items()}
    if not any(labelled.values()):
        if not any(shown.clicked for impression in cleaned.impressions for shown in impression.shown):
            raise NoLabelsError("the logs have no click on a passage: import a log with clicks.")
        raise NoLabelsError(
            "no passage is relevant by these clicks: import a longer time, or lower --level and --of-background. "
            f"Passages that are no answer are clicked at a rate of {result.rates.background:.3f}, others at "
            f"{result.rates.attractive:.3f}."
        )
    questions = _questions(cleaned, {question for by_question in labelled.values() for question in by_question})
    write_queries(directory / QUERIES, questions.values())
    counts = {}
    for name, by_question in labelled.items():
        if by_question:
            rows = (Qrel(questions[pair.question][0].id, pair.passage, value) for pair, value in _decided(by_question))
            counts[name] = write_qrels(directory / "qrels" / f"{name}.tsv", rows)
    write_judgements(directory, labelled, {key: question.query.id for key, question in questions.items()})
    write_json(directory / REPORT, _report(logs, cleaned, result, judged).as_json())
    return {"counts": {"passages": len(corpus.keys), "queries": len(questions), "judgements": counts}}


def _holds_clicks_alone(cleaned: Cleaned) -> bool:
    """Whether every shown passage was clicked: the columns of lists then hold clicks alone."""
    return all(one.clicked for impression in cleaned.impressions for one in impression.shown)


def _cleaned(
    logs: Sequence[Log], corpus: WrittenCorpus, settings: FeedbackSettings, redact: bool, keep_from: float | None
) -> Cleaned:
    """The impressions of the logs; no impression is an error."""
    for log in logs:
        if isinstance(log, EventLog):  # a store's columns are no guess
            taken = ", ".join(f"{field} = {name}" for field, name in log.columns.items())
            say(f"{log.path}: {taken}")
    events = (event for log in logs for event in log.events())
    cleaned = clean(events, corpus.keys, settings, redact=redact, keep_from=keep_from)
    if not cleaned.impressions:
        counts = {name: count for name, count in cleaned.figures.as_json().items() if count}
        dropped = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items()) or "no event"
        raise NoLabelsError(f"no event of these logs is left ({dropped}): check --passages and --keep-days.")
    return cleaned


def _report(
    logs: Sequence[Log],
    cleaned: Cleaned,
    result: JudgedImpressions,
    judged: Mapping[str, tuple[Sequence[Judgement], int]],
) -> FeedbackReport:
    are_lists = not _holds_clicks_alone(cleaned)
    log_figures = [
        LogFigures(name=log.path.name, columns=log.columns, has_lists=log.has_lists and are_lists)
        for log in sorted(logs, key=lambda log: log.path.name)
    ]
    has_sessions = all("session" in log.columns for log in logs)
    positions, rates = result.bias.figures, result.rates
    splits = [_split_figures(name, result.split.by_name[name], *judged[name]) for name in judged]
    return FeedbackReport(
        logs=log_figures,
        begins=as_date(cleaned.impressions[0].time),
        ends=as_date(cleaned.impressions[-1].time),
        cleaning=cleaned.figures,
        later_of_earlier=result.split.later,
        positions=list(positions),
        rates=rates,
        splits=splits,
        drift=drift(cleaned.impressions, result.at),
        warnings=warnings_of(log_figures, cleaned.figures, positions, rates, splits, has_sessions),
    )


def _without_same_texts(judgements: Sequence[Judgement], keys: Mapping[str, int]) -> tuple[list[Judgement], int]:
    """Judgements in which hard negatives with the text of a relevant passage or the question are undecided.

    Returns:
        The judgements, and the number of these hard negatives.
    """
    relevant: dict[str, set[int]] = {}
    for pair in judgements:
        if pair.verdict == "relevant":
            relevant.setdefault(pair.question, {text_key(pair.question)}).add(keys[pair.passage])
    checked, same = [], 0
    for pair in judgements:
        if pair.verdict == "not relevant" and keys[pair.passage] in relevant.get(pair.question, ()):
            pair, same = pair._replace(verdict="undecided"), same + 1
        checked.append(pair)
    return checked, same


def with_relevant(judgements: Iterable[Judgement]) -> dict[str, list[Judgement]]:
    """Judgements by question, of the questions with a relevant passage."""
    by_question: dict[str, list[Judgement]] = {}
    for pair in judgements:
        by_question.setdefault(pair.question, []).append(pair)
    return {
        question: pairs for question, pairs in by_question.items() if any(pair.verdict == "relevant" for pair in pairs)
    }


def _decided(judgements: Mapping[str, Sequence[Judgement]]) -> Iterator[tuple[Judgement, int]]:
    """Judgements that are not undecided, with their relevance."""
    for pairs in judgements.values():
        yield from ((pair, pair.relevance) for pair in pairs if pair.relevance is not None)


def _questions(cleaned: Cleaned, wanted: set[str]) -> dict[str, _Question]:
    """Queries by normalised text, in the order of their first time."""
    times_of: dict[str, list[float]] = {}
    for impression in cleaned.impressions:
        if impression.question in wanted:
            times_of.setdefault(impression.question, []).append(impression.time)
    return {
        question: _Question(
            Query(query_id(question), cleaned.texts[question]),
            {
                "impressions": len(times),
                "first": as_date(times[0]),
                "last": as_date(times[-1]),
                # Several ids belong to events, not to the question.
                **({"log_id": cleaned.ids[question][0]} if len(cleaned.ids.get(question, ())) == 1 else {}),
            },
        )
        for question, times in times_of.items()
    }


def query_id(question: str) -> str:
    """Id of a question by its normalised text: the same in every import."""
    return "q" + hashlib.sha256(question.encode()).hexdigest()[:16]


def _split_figures(
    name: str, impressions: Sequence[Impression], judgements: Sequence[Judgement], same_text: int
) -> SplitJudgements:
    labelled = with_relevant(judgements)
    verdicts = [pair.verdict for pairs in labelled.values() for pair in pairs]
    return SplitJudgements(
        split=name,
        impressions=len(impressions),
        questions=len({impression.question for impression in impressions}),
        clicks=sum(pair.clicks for pair in judgements),
        pairs=len(judgements),
        relevant=verdicts.count("relevant"),
        questions_with_relevant=len(labelled),
        undecided=sum(pair.verdict == "undecided" and pair.clicks > 0 for pair in judgements),
        hard_negatives=verdicts.count("not relevant"),
        same_text=same_text,
    )
