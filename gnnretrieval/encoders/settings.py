"""Settings of encoding."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator
from pydantic_core import PydanticCustomError

from gnnretrieval.settings import SECRET, Settings

ENDPOINT = "endpoint:"  # prefix of the name of a model behind an embeddings endpoint
FUNCTION = "function:"  # prefix of the name of a Python function
VECTORS = "vectors:"  # prefix of the name of an encoder that is known only by its vectors


class EndpointSettings(Settings):
    """An embeddings endpoint, and how it is called.

    Attributes:
        endpoint: Address of an OpenAI-compatible API, such as https://api.openai.com/v1; checkpoint is then the name of
            its model. Texts are sent there.
        dimensions: Width of the vectors to request (Matryoshka models); not given: the model's default.
        input_types: Values of input_type in requests for queries and for passages, such as query,document; not given:
            none are sent.
        key_variable: Environment variable that holds the key.
        batch_texts: Maximum number of texts in a request.
        concurrency: Maximum number of requests at the same time.
        requests_per_minute: Maximum number of requests per minute; not given: no limit.
        price: Price of a million tokens, to print the cost of encoding.
    """

    endpoint: str | None = None
    dimensions: int | None = Field(None, ge=1)
    input_types: tuple[str, ...] | None = None
    key_variable: str = Field("OPENAI_API_KEY", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    batch_texts: int = Field(64, ge=1, le=2048)
    concurrency: int = Field(4, ge=1, le=64)
    requests_per_minute: float | None = Field(None, gt=0)
    price: float | None = Field(None, ge=0)

    @field_validator("endpoint")
    @classmethod
    def _address(cls, endpoint: str | None) -> str | None:
        if endpoint is None:
            return None
        parts = urlsplit(endpoint)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("give an address such as https://api.openai.com/v1")
        if parts.username or parts.password or parts.query:
            raise PydanticCustomError(
                SECRET,
                "leave the key out of the address: it would be written to disk. Name its key_variable",
            )
        return endpoint.rstrip("/")

    @field_validator("input_types")
    @classmethod
    def _one_per_side(cls, types: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if types is not None and len(types) != 2:
            raise ValueError("give two, of queries and of passages, such as query,document")
        return types


class EncoderSettings(Settings):
    """How texts become vectors.

    Attributes:
        checkpoint: Name or path of the passage encoder ``E_P`` (and of ``E_Q``, if they share weights).
        query_checkpoint: Name or path of the query encoder ``E_Q``, if it has separate weights.
        similarity: ``cosine``, ``dot``, or ``auto``: dot if the checkpoint says so, else cosine.
        scale: Factor on the similarity in the softmax (1 / temperature); not given: 20 for cosine, 1 for dot product.
        query_prompt: Put before every query; not given: the checkpoint's own, if it has one.
        passage_prompt: Put before every passage; not given: the checkpoint's own, if it has one.
        max_tokens: Maximum length of a text in tokens; not given: the checkpoint's own limit.
        query_max_tokens: The same for queries; not given: as for passages.
        sentences: How passages are read. ``none``: one vector per passage; ``token``: one per sentence, at its
            ``<sent>`` token (DCSR); ``mean``: one per sentence, the mean over its tokens.
        late_interaction: Width of the vectors of tokens, which rank passages (ColBERT); a text also has their mean. Not
            given: one vector per text.
        token_match: What a question's token is compared with: ``all`` tokens of the passage, by cosine (ColBERT), or
            the ``same`` token alone, by dot product (COIL).
        passage_vectors: Number of vectors of a passage, those of its first tokens. A question has one, and the
            nearest of the passage's counts (ME-BERT). Not given: those of all tokens.
        sparse: Texts become weights of the vocabulary's terms instead of a vector, by a head for masked language
            modelling (SPLADE).
        own_terms: With sparse, a text has weights only of terms that it contains, as in DeepCT and uniCOIL.
        token_storage: How the vectors of passages' tokens are stored: ``float16``, or ``int8`` in half the bytes.
        precision: Precision of weights and matrix products. ``auto``: bfloat16 if the processor supports it.
        token_budget: Maximum number of tokens in a batch, with padding if texts are padded.
        window: Number of rows that are encoded together, in batches of similar length, before they are written.
        api: The endpoint, if one encodes.
    """

    checkpoint: str = "sentence-transformers/all-MiniLM-L6-v2"
    query_checkpoint: str | None = None
    similarity: Literal["auto", "cosine", "dot"] = "auto"
    scale: float | None = Field(None, gt=0)
    query_prompt: str | None = None
    passage_prompt: str | None = None
    max_tokens: int | None = Field(None, ge=1)
    query_max_tokens: int | None = Field(None, ge=1)
    sentences: Literal["none", "token", "mean"] = "none"
    late_interaction: int | None = Field(None, ge=1)
    token_match: Literal["all", "same"] = "all"
    passage_vectors: int | None = Field(None, ge=1)
    sparse: bool = False
    own_terms: bool = False
    token_storage: Literal["float16", "int8"] = "float16"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    token_budget: int = Field(4096, ge=1)
    window: int = Field(1024, ge=1)
    api: EndpointSettings = EndpointSettings()

    @model_validator(mode="before")
    @classmethod
    def _named_as_endpoint(cls, values: Any) -> Any:
        """Mark checkpoints as names of an endpoint's models, if there is an endpoint."""
        api = values.get("api") if isinstance(values, dict) else None
        address = api.get("endpoint") if isinstance(api, dict) else getattr(api, "endpoint", None)
        if address is None:
            return values
        if not values.get("checkpoint"):
            raise ValueError("an endpoint has several models: name one by checkpoint")
        names = {key: values[key] for key in ("checkpoint", "query_checkpoint") if values.get(key)}
        return values | {
            key: name if str(name).startswith(ENDPOINT) else f"{ENDPOINT}{name}" for key, name in names.items()
        }

    @model_serializer(mode="wrap")
    def _without_unused(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what is off, as in settings of versions that lacked it: endpoint, late interaction, sparse."""
        values: dict[str, Any] = dump(self)
        if self.api.endpoint is None:
            values.pop("api", None)
        if self.late_interaction is None:
            values.pop("late_interaction", None)
            values.pop("token_storage", None)
        if self.token_match == "all":
            values.pop("token_match", None)
        if self.passage_vectors is None:
            values.pop("passage_vectors", None)
        for name in ("sparse", "own_terms"):
            if not getattr(self, name):
                values.pop(name, None)
        return values

    @model_validator(mode="after")
    def _token_settings_fit(self) -> EncoderSettings:
        if self.token_match == "same":
            if self.late_interaction is None or self.similarity == "cosine" or self.token_storage == "int8":
                raise ValueError(
                    "token_match = same compares tokens by dot product: give late_interaction, and leave similarity at "
                    "auto or dot and token_storage at float16, because int8 does not keep lengths"
                )
        elif self.late_interaction is not None and self.similarity == "dot":
            raise ValueError("late_interaction compares tokens by cosine: leave similarity at auto or cosine")
        if self.passage_vectors is not None and (self.late_interaction is None or self.token_match == "same"):
            raise ValueError("passage_vectors are those of first tokens: give late_interaction, and token_match = all")
        if self.late_interaction is not None and self.sentences != "none":
            raise ValueError("late_interaction has vectors of tokens, not of sentences: leave sentences at none")
        return self

    @model_validator(mode="after")
    def _sparse_settings_fit(self) -> EncoderSettings:
        if self.sparse and (self.late_interaction is not None or self.sentences != "none"):
            raise ValueError("sparse has weights of terms, not of tokens or sentences: leave the other one out")
        if self.own_terms and not self.sparse:
            raise ValueError("own_terms are those of a sparse encoder: give sparse too")
        if self.sparse and self.similarity == "cosine":
            raise ValueError("sparse compares terms by dot product: leave similarity at auto or dot")
        if self.sparse and self.api.endpoint is not None:
            raise ValueError("sparse needs a checkpoint: an endpoint gives vectors")
        return self

    @property
    def is_checkpoint(self) -> bool:
        """Whether the encoder is a checkpoint, not an endpoint, a Python function or imported vectors."""
        return not self.checkpoint.startswith((ENDPOINT, FUNCTION, VECTORS))

    def for_checkpoint(self, checkpoint: str | Path) -> EncoderSettings:
        """Settings of another checkpoint with the precision, batch sizes and storage of tokens of these."""
        shared = self.model_dump(include={"precision", "token_budget", "window", "token_storage"})
        return EncoderSettings(checkpoint=str(checkpoint), **shared)


class CrossEncoderSettings(Settings):
    """How a cross-encoder reads pairs of texts.

    Attributes:
        checkpoint: Name or path of a cross-encoder: a sequence classifier with one or two labels.
        max_tokens: Maximum length of a pair in tokens, special ones included; the longer text is cut first. None: the
            checkpoint's own limit.
        precision: Precision of weights and matrix products. ``auto``: bfloat16 if the processor supports it.
        token_budget: Maximum number of tokens in a batch, with padding if pairs are padded.
    """

    checkpoint: str
    max_tokens: int | None = Field(192, ge=8)
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    token_budget: int = Field(4096, ge=1)


class ReaderSettings(Settings):
    """How a reader answers a question from its best passages.

    Attributes:
        reader: Name or path of a reader: of encoder train reader, or any checkpoint for extractive question answering.
        passages: Number of passages to read for a question.
        weight: Weight of the retrieval score, which is scaled to 0 … 1 over the passages of a question, beside the
            log-probability of the answer.
        answer_tokens: Maximum length of an answer in tokens.
        max_tokens: Maximum length of question and passage together in tokens; a longer passage is read in overlapping
            windows. Not given: as the reader was trained, else 256.
        precision: Precision of weights and matrix products. auto: bfloat16 if the processor supports it.
        token_budget: Maximum number of tokens in a batch, with padding if texts are padded.
    """

    reader: str
    passages: int = Field(10, ge=1)
    weight: float = Field(2.0, ge=0)
    answer_tokens: int = Field(30, ge=1)
    max_tokens: int | None = Field(None, ge=32)
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    token_budget: int = Field(4096, ge=1)


Checkpoints = TypeVar("Checkpoints", EncoderSettings, CrossEncoderSettings)


def with_checkpoints_at(settings: Checkpoints, input_at: Callable[[Path], Path]) -> Checkpoints:
    """The settings for a machine that has local checkpoints, whose paths are absolute here, at ``input_at``."""
    names = {name: getattr(settings, name, None) for name in ("checkpoint", "query_checkpoint")}
    places = {name: str(input_at(Path(given))) for name, given in names.items() if given and Path(given).is_absolute()}
    return settings.model_copy(update=places)
