"""A recipe: one TOML file with the settings of every stage."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from gnnretrieval.data.docstring_corpus.corpus import Summaries
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.vectors import VectorSettings
from gnnretrieval.errors import InputError
from gnnretrieval.evaluation import parse_measures
from gnnretrieval.feedback.settings import FeedbackSettings
from gnnretrieval.graph.settings import GraphSettings
from gnnretrieval.index.hybrid import NEEDED, RankingSettings
from gnnretrieval.recipes.update_settings import UpdateSettings
from gnnretrieval.settings import Settings
from gnnretrieval.training.gnn.settings import TrainSettings

DOCSTRINGS: Mapping[str, Summaries] = {"docstrings": "passage", "docstrings-cut": "question"}  # by source

_PACKAGE = Path(__file__).resolve().parents[1]


class Download(Settings):
    """A file that the user downloads.

    Attributes:
        url: Address at its publisher.
        bytes: Its size there.
        md5: Published MD5 checksum.
        sha256: Published SHA-256 checksum.
        holds: Files to extract, where it is a tar archive.
    """

    url: str = Field(pattern=r"^https?://.*[^/]$")
    bytes: int | None = Field(None, ge=1)
    md5: str | None = Field(None, pattern=r"^[0-9a-f]{32}$")
    sha256: str | None = Field(None, pattern=r"^[0-9a-f]{64}$")
    holds: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of the downloaded file."""
        return self.url.rpartition("/")[2]


class DataSettings(Settings):
    """Where passages, queries and judgements come from.

    Attributes:
        source: A dataset directory, relative to the recipe; ``docstrings``: the corpus made from installed packages;
            ``docstrings-cut``: its variant in which summaries are cut from the passages and become training questions;
            None: given on the command line. With ``files``: their folder.
        qrels: Folder of judgements in the dataset.
        where: Metadata values; only passages and queries that have them are kept.
        files: Files to import from the folder, as ``data import`` takes them (``[FORMAT][@SPLIT]=NAME``).
        columns: Column by field, for tables whose columns have other names.
        skip_unknown: Leave out judgements of unknown queries and passages.
        download: Where to download the files.
    """

    source: str | None = None
    qrels: str = "qrels"
    where: Mapping[str, str] = Field({})
    files: tuple[str, ...] = ()
    columns: Mapping[str, str] = Field({})
    skip_unknown: bool = False
    download: tuple[Download, ...] = ()

    @model_validator(mode="after")
    def _files_are_named(self) -> Self:
        if not self.files and (self.download or self.columns or self.skip_unknown):
            raise ValueError("download, columns and skip_unknown need files to import: name them in files")
        return self


class SizeSettings(Settings):
    """How large data and checkpoints are, for a dry run that has neither.

    Attributes:
        passages: Number of passages.
        queries: Number of queries of all splits, judged or not.
        graph_queries: Number of queries in the graph.
        reported_queries: Number of queries that are reported on.
        text_bytes: Bytes of ``corpus.jsonl`` and ``queries.jsonl``.
        dimension: Width of the encoder's vectors.
        edge_dimension: Width of the cross-encoder's vectors, where it reads the pairs.
    """

    passages: int = Field(ge=1)
    queries: int = Field(ge=1)
    graph_queries: int = Field(ge=1)
    reported_queries: int = Field(ge=1)
    text_bytes: int = Field(ge=1)
    dimension: int | None = Field(None, ge=1)
    edge_dimension: int | None = Field(None, ge=1)


class VectorSource(VectorSettings):
    """Node features from vectors of another encoder.

    Attributes:
        passages: File with the passages' vectors, ``.npy`` or ``.parquet``, relative to the recipe.
        queries: File with the queries' vectors, of every split.
        passage_ids: File with one passage id per line, for an ``.npy`` that is not in the dataset's order.
        query_ids: The same for the queries.
    """

    passages: str
    queries: str
    passage_ids: str | None = None
    query_ids: str | None = None


class CompareSettings(Settings):
    """What is reported.

    Attributes:
        split: Split that is reported.
        measures: Names by ir-measures; the first is the main measure.
        depth: Passages per query in the runs.
        fuse: How BM25's ranking is joined with each dense one, for the table of hybrids
            (:func:`gnnretrieval.evaluation.fuse`). ``chosen``: by the method and weights that dev chooses
            (:func:`gnnretrieval.evaluation.choose_fusion`), without a dev split by the questions that training held
            out, or by ``rrf`` where there are none. ``none``: no table of hybrids.
        baselines: Whether to compare the GNN-encoder also with simple uses of the same labels
            (:func:`gnnretrieval.baselines.rankings.rank_baselines`).
    """

    split: str = "test"
    measures: tuple[str, ...] = ("RR@10", "nDCG@10", "R@1", "R@5", "R@20", "R@100")
    depth: int = Field(100, ge=1)
    fuse: Literal["chosen", "rrf", "weighted", "none"] = "chosen"
    baselines: bool = True


class Recipe(Settings):
    """All stages of a run, from data to comparison.

    Attributes:
        name: Name of the output directory.
        data: Passages, queries and judgements.
        encoder: The prebuilt dual-encoder.
        vectors: Node features from vectors of another encoder, instead of ``encoder``.
        graph: The query-passage graph.
        train: Training of the GNN-encoder.
        joint: Joint training with the dual-encoder, which continues ``train``; not given: none.
        ranking: What ranks together with the GNN-encoder's index, such as a re-ranker (``rerank``); one more system in
            the comparison. Paths are relative to the recipe. Not given: none.
        compare: What is reported.
        size: Sizes for ``run --dry-run`` without a dataset.
        feedback: How event logs are read, for ``update``.
        update: How ``update`` updates a search from them.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    data: DataSettings = DataSettings()
    encoder: EncoderSettings = EncoderSettings()
    vectors: VectorSource | None = None
    graph: GraphSettings = GraphSettings()
    train: TrainSettings = TrainSettings()
    joint: TrainSettings | None = None
    ranking: RankingSettings | None = None
    compare: CompareSettings = CompareSettings()
    size: SizeSettings | None = None
    feedback: FeedbackSettings = FeedbackSettings()
    update: UpdateSettings = UpdateSettings()

    @model_validator(mode="before")
    @classmethod
    def _joint_continues_gat(cls, values: Any) -> Any:
        if not isinstance(values, Mapping) or not isinstance(train := values.get("train", {}), Mapping):
            return values
        return {**values, "train": {"layer": "gat", **train}} if values.get("joint") is not None else values

    @field_validator("joint", mode="before")
    @classmethod
    def _is_joint(cls, values: Any) -> Any:
        return {"mode": "joint", **values} if isinstance(values, Mapping) else values

    @model_validator(mode="after")
    def _reports_on_what_it_has_not_seen(self) -> Self:
        if self.compare.split == self.graph.split:
            raise ValueError(f"the graph is built from split {self.graph.split!r}, which is also the reported split")
        parse_measures(self.compare.measures)
        if self.ranking is not None and self.ranking.is_plain:
            raise ValueError("[ranking] adds nothing to the index: give rerank or hybrid")
        given = set() if self.ranking is None else self.ranking.model_fields_set
        if "system" in given:
            raise ValueError("[ranking] is over the gnn-encoder's index: leave out system")
        for name, needed in NEEDED.items():
            if name in given and needed not in given:
                raise ValueError(f"[ranking] {name} has no effect without {needed}")
        if self.vectors is not None and "encoder" in self.model_fields_set:
            raise ValueError("[vectors] replaces [encoder]: give one of them")
        for settings in filter(None, (self.train, self.joint)):
            if settings.unused:
                raise ValueError(settings.unused)
        if self.joint is not None:
            if not self.joint.is_joint or self.train.is_joint:
                raise ValueError("[joint] continues [train]: the mode of [train] must be frozen, and of [joint] joint")
            if self.train.layer != "gat":
                raise ValueError("[joint] continues [train]: the layer of [train] must be gat")
            if self.joint.encoder != self.train.encoder:
                raise ValueError("[joint] continues [train]: both must have the same encoder settings")
        if self.vectors is not None and (self.joint is not None or self.train.is_joint):
            raise ValueError("joint training trains the encoder: it cannot use [vectors] of another encoder")
        return self


def read_recipe(path: str | Path) -> Recipe:
    """Read the recipe at ``path``; tables that it lacks come from the recipe that it ``extends``.

    Raises:
        InputError: the file is not TOML, has an unknown key or a value that does not fit (the line is named), or
            extends a recipe that extends another.
    """
    path = Path(path)
    text, values = read_toml(path)
    lines = lines_of_keys(text)
    if (extended := values.pop("extends", None)) is not None:
        values = _tables_of(path, extended, lines["extends"]) | values
    return Recipe.parse(values, path, lines)


def _tables_of(path: Path, extended: Any, line: int) -> dict[str, Any]:
    """The tables of the recipe ``extended``, which is beside ``path``."""
    if not isinstance(extended, str) or Path(extended).name != extended:
        raise InputError('extends must be the file name of a recipe beside this one, such as "nq.toml".', path, line)
    beside = path.parent / extended
    text, values = read_toml(beside)
    if "extends" in values:
        raise InputError(f"{extended} extends another recipe: extend that one.", path, line)
    Recipe.parse(values, beside, lines_of_keys(text))  # so that errors name lines of this file
    return values


def find_recipe(name: Path) -> Path:
    """The recipe file ``name``: a path, or the name of a recipe of the package, such as ``msmarco``."""
    ours = _packaged() / f"{name.name.removesuffix('.toml')}.toml"
    return ours if not name.exists() and ours.is_file() and name.parent.name in ("", "graphs") else name


def is_packaged(path: Path) -> bool:
    """Whether a recipe is inside the installed package, where nothing may be written."""
    return path.resolve().is_relative_to(_PACKAGE)


def _packaged() -> Path:
    """Directory of the package's recipes: ``graphs/`` of a checkout, or inside the installed package."""
    checkout = _PACKAGE.parent / "graphs"
    return checkout if (_PACKAGE.parent / "pyproject.toml").is_file() else _PACKAGE / "graphs"


def read_toml(path: Path) -> tuple[str, dict[str, Any]]:
    """Text and values of a TOML file.

    Raises:
        InputError: there is no such file, or it is not TOML (the line is named).
    """
    if not path.is_file():
        names = ", ".join(sorted(file.stem for file in _packaged().glob("*.toml")))
        raise InputError(f"there is no such recipe. Give a TOML file, or one of these names: {names}.", path)
    try:
        text = path.read_text(encoding="utf-8")
        values: dict[str, Any] = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8 ({error.reason} at byte {error.start}).", path) from None
    except RecursionError:
        raise InputError("this TOML is nested too deeply for a recipe.", path) from None
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        raise InputError(f"not TOML: {error}.", path, int(line[1]) if line else None) from None
    return text, values


def lines_of_keys(text: str) -> dict[str, int]:
    """Line of each ``key =`` and ``[table]`` by dotted name, for error messages."""
    lines: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[\s*([\w.-]+)\s*\]", line):
            table = header[1]
            lines.setdefault(table, number)
        elif key := re.match(r"\s*([\w.-]+)\s*=", line):
            dotted = f"{table}.{key[1]}" if table else key[1]
            parts = dotted.split(".")
            for count in range(1, len(parts) + 1):
                lines.setdefault(".".join(parts[:count]), number)
    return lines
