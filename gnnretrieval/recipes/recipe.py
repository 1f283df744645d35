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
from gnnretrieval.graph.settings import GraphSettings
from gnnretrieval.settings import Settings
from gnnretrieval.training.gnn.settings import TrainSettings

DOCSTRINGS: Mapping[str, Summaries] = {"docstrings": "passage", "docstrings-cut": "question"}  # by source

_PACKAGE = Path(__file__).resolve().parents[1]


class Download(Settings):
    """A file that the user downloads.

    Attributes:
        url: Where its publisher has it.
        bytes: How long it is there.
        md5: Its sum, where one is published.
        sha256: The same.
        holds: What is taken out of it, where it is a tar archive.
    """

    url: str = Field(pattern=r"^https?://.*[^/]$")
    bytes: int | None = Field(None, ge=1)
    md5: str | None = Field(None, pattern=r"^[0-9a-f]{32}$")
    sha256: str | None = Field(None, pattern=r"^[0-9a-f]{64}$")
    holds: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What it is called when downloaded."""
        return self.url.rpartition("/")[2]


class DataSettings(Settings):
    """Where passages, queries and judgements come from.

    Attributes:
        source: A dataset directory, relative to the recipe; ``docstrings``: the corpus made from installed packages;
            ``docstrings-cut``: its variant whose summaries are cut out of the passages and given back as training
            questions; None: given on the command line. With ``files``: the folder they are in.
        qrels: Folder of judgements in it.
        where: Metadata values that passages and queries are kept for.
        files: What is imported, as ``data import`` takes it (``[FORMAT][@SPLIT]=NAME``), by names in the folder.
        columns: Column by field, for tables whose columns have other names.
        skip_unknown: Leave out judgements of queries and passages that are not there.
        download: Where the files are to be had.
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
            raise ValueError("download, columns and skip_unknown are of files to import: name them in files")
        return self


class SizeSettings(Settings):
    """How large data and checkpoints are, for a dry run that has neither.

    Attributes:
        passages: Passages.
        queries: Queries of every split, judged or not.
        graph_queries: Queries that make the graph.
        reported_queries: Queries that are reported on.
        text_bytes: Bytes of passages and queries as the dataset holds them.
        dimension: Width of the encoder's vectors.
        edge_dimension: Width of the cross-encoder's, where it reads the pairs.
    """

    passages: int = Field(ge=1)
    queries: int = Field(ge=1)
    graph_queries: int = Field(ge=1)
    reported_queries: int = Field(ge=1)
    text_bytes: int = Field(ge=1)
    dimension: int | None = Field(None, ge=1)
    edge_dimension: int | None = Field(None, ge=1)


class VectorSource(VectorSettings):
    """Node features that another encoder made, in the encoder's place.

    Attributes:
        passages: File of the passages' vectors, ``.npy`` or ``.parquet``, relative to the recipe.
        queries: File of the queries', of every split.
        passage_ids: File of ids, one a line, of an ``.npy`` that is not in the dataset's order.
        query_ids: The same of the queries.
    """

    passages: str
    queries: str
    passage_ids: str | None = None
    query_ids: str | None = None


class CompareSettings(Settings):
    """What is reported.

    Attributes:
        split: Split that is reported.
        measures: By ir-measures' names; the first one is the main one.
        depth: Passages a query in the runs.
        fuse: How BM25's ranking is joined with each dense one, for the table of what they are worth together
            (:func:`gnnretrieval.evaluation.fuse`). ``chosen``: by method and weights that dev chooses
            (:func:`gnnretrieval.evaluation.choose_fusion`), or by ``rrf`` where there is no dev split; ``none``: no
            such table.
        baselines: Whether the GNN-encoder is compared with simple uses of the same labels too
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
        name: Of the directory that everything goes to.
        data: Passages, queries and judgements.
        encoder: The prebuilt dual-encoder.
        vectors: Node features of another encoder, in its place.
        graph: The query-passage graph.
        train: The GNN-encoder.
        joint: Joint training with the dual-encoder, from where ``train`` ended; not given: none.
        compare: What is reported.
        size: How large it all is, for ``run --dry-run`` before anything is there.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    data: DataSettings = DataSettings()
    encoder: EncoderSettings = EncoderSettings()
    vectors: VectorSource | None = None
    graph: GraphSettings = GraphSettings()
    train: TrainSettings = TrainSettings()
    joint: TrainSettings | None = None
    compare: CompareSettings = CompareSettings()
    size: SizeSettings | None = None

    @model_validator(mode="before")
    @classmethod
    def _joint_goes_on_from_gat(cls, values: Any) -> Any:
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
            raise ValueError(f"the graph is built from split {self.graph.split!r}, which is also the one reported on")
        parse_measures(self.compare.measures)
        if self.vectors is not None and "encoder" in self.model_fields_set:
            raise ValueError("[vectors] stands in the place of [encoder]: give one of them")
        if self.joint is not None:
            if not self.joint.is_joint or self.train.is_joint:
                raise ValueError("[joint] goes on from [train], whose mode is frozen")
            if self.train.layer != "gat":
                raise ValueError("[joint] goes on from [train], whose layer is gat")
            if self.joint.encoder != self.train.encoder:
                raise ValueError("[joint] goes on from [train]: the shape of the GNN-encoder (encoder) is the same")
        if self.vectors is not None and (self.joint is not None or self.train.is_joint):
            raise ValueError("joint training recomputes features: [vectors] of another encoder cannot be")
        return self


def read_recipe(path: str | Path) -> Recipe:
    """Read the recipe at ``path``, with the tables of the one it ``extends`` that it does not give itself.

    Raises:
        InputError: it is no TOML, or has an unknown key or a value that does not fit; the line is named. Or it extends
            a recipe that extends another.
    """
    path = Path(path)
    text, values = read_toml(path)
    lines = lines_of_keys(text)
    if (extended := values.pop("extends", None)) is not None:
        values = _tables_of(path, extended, lines["extends"]) | values
    return Recipe.parse(values, path, lines)


def _tables_of(path: Path, extended: Any, line: int) -> dict[str, Any]:
    """What the recipe ``extended`` beside ``path`` gives."""
    if not isinstance(extended, str) or Path(extended).name != extended:
        raise InputError('extends: the file name of a recipe beside this one, such as "nq.toml".', path, line)
    beside = path.parent / extended
    text, values = read_toml(beside)
    if "extends" in values:
        raise InputError(f"{extended} extends another recipe itself: extend that one.", path, line)
    Recipe.parse(values, beside, lines_of_keys(text))  # what is wrong in it is named with its own line
    return values


def find_recipe(name: Path) -> Path:
    """The recipe file called ``name``: a path, or the name of one that comes with the package, such as ``msmarco``."""
    ours = _packaged() / f"{name.name.removesuffix('.toml')}.toml"
    return ours if not name.exists() and ours.is_file() and name.parent.name in ("", "graphs") else name


def is_packaged(path: Path) -> bool:
    """Whether a recipe lies inside of the installed package, where nothing is to be written."""
    return path.resolve().is_relative_to(_PACKAGE)


def _packaged() -> Path:
    """Where the package's own recipes lie: ``graphs/`` of a checkout, or inside of the installed package."""
    checkout = _PACKAGE.parent / "graphs"
    return checkout if (_PACKAGE.parent / "pyproject.toml").is_file() else _PACKAGE / "graphs"


def read_toml(path: Path) -> tuple[str, dict[str, Any]]:
    """Text and values of a TOML file.

    Raises:
        InputError: there is none, or it is no TOML; the line is named.
    """
    if not path.is_file():
        names = ", ".join(sorted(file.stem for file in _packaged().glob("*.toml")))
        raise InputError(f"no such recipe; a TOML file was expected, or the name of one of ours: {names}.", path)
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
