"""Reading ``meta.json``, with a check of the types of entries that several kinds of artifact share."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from gnnretrieval.errors import InputError
from gnnretrieval.storage.json_files import read_json

_Count = Annotated[int, Field(ge=0, lt=2**48)]
_Dict = dict[str, Any]


class _Dataset(BaseModel):
    """An artifact's record of its dataset: the entries by which it is opened again."""

    model_config = ConfigDict(extra="allow", strict=True)

    name: str
    qrels: str
    where: _Dict = {}


class _Meta(BaseModel):
    """Entries of a ``meta.json``; those with a default are not in every kind of artifact."""

    model_config = ConfigDict(extra="allow", strict=True)

    kind: Annotated[str, Field(min_length=1)]
    format_version: int
    hash: str
    config: _Dict
    inputs: dict[str, str]
    files: _Dict
    fingerprint: str = ""
    made_from: dict[str, str] = {}
    updates: list[_Dict] = []
    encoder: _Dict | None = {}  # None: examples mined by BM25
    similarity: _Dict = {}
    dataset: _Dataset | None = None
    checkpoint_hash: dict[str, str] = {}
    canary: _Dict = {}
    messages: _Dict = {}
    questions: _Dict = {}
    num_passages: _Count = 0
    num_queries: _Count = 0
    num_sentences: _Count = 0
    num_vectors: _Count = 0
    bytes: _Count = 0
    dimension: Annotated[int, Field(ge=1, lt=2**31)] = 1
    edge_dim: Annotated[int, Field(ge=0, lt=2**31)] = 0
    edge_vectors: _Count | None = None
    edge_features: list[str] = []
    shards: Annotated[int, Field(ge=1, lt=10_000)] = 1
    system: str = ""
    search: str = ""

    @field_validator("files")
    @classmethod
    def _inside(cls, files: _Dict) -> _Dict:
        for name in files:
            if not is_inside(name):
                raise ValueError(f"its file {name!r} lies outside of the artifact")
        return files


def is_inside(name: str) -> bool:
    """Whether a recorded file name stays inside of its directory."""
    path = PurePosixPath(name)
    return not (path.is_absolute() or not path.parts or ".." in path.parts or "\0" in name)


def read_meta(path: Path) -> dict[str, Any]:
    """The entries of a ``meta.json``.

    Raises:
        ValueError: The file cannot be read or is no JSON object, an entry that every artifact has is missing, or an
            entry has the wrong type.
    """
    try:
        meta: Any = read_json(path, "JSON")
    except InputError as error:
        raise ValueError(error.says.rstrip(".")) from None
    if not isinstance(meta, dict):
        raise ValueError("it is no JSON object")
    try:
        _Meta.model_validate(meta)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(map(str, first["loc"]))
        if first["type"] == "missing":
            raise ValueError(f"it lacks {name!r}") from None
        reason = first["msg"].removeprefix("Value error, ")
        raise ValueError(f"{name}: {reason[0].lower()}{reason[1:]}") from None
    return meta
