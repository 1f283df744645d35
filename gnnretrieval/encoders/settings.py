"""Settings of encoding."""

from __future__ import annotations

from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator
from pydantic_core import PydanticCustomError

from gnnretrieval.settings import SECRET, Settings

ENDPOINT = "endpoint:"  # begins the name of a model behind an embeddings endpoint
FUNCTION = "function:"  # of a Python function
VECTORS = "vectors:"  # of an encoder that is not here: only its vectors are


class EndpointSettings(Settings):
    """An embeddings endpoint, and how it is asked.

    Attributes:
        endpoint: Address of an OpenAI-compatible API, such as https://api.openai.com/v1; checkpoint is then the name of
            its model. Texts are sent there.
        dimensions: Numbers of a vector that the endpoint is asked for (Matryoshka models); not given: as many as it
            gives.
        input_types: What the endpoint is told of queries and of passages as input_type, such as query,document.
        key_variable: Environment variable that holds the key.
        batch_texts: Texts in one request.
        concurrency: Requests at a time.
        requests_per_minute: Most requests in a minute; not given: no limit of ours.
        price: Of a million tokens, to say what encoding cost.
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
    def _two(cls, types: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if types is not None and len(types) != 2:
            raise ValueError("give two, of queries and of passages, such as query,document")
        return types


class EncoderSettings(Settings):
    """How texts become vectors.

    Attributes:
        checkpoint: Name or path of the passage encoder ``E_P`` (and of ``E_Q``, where they share weights).
        query_checkpoint: Name or path of ``E_Q`` where it has weights of its own.
        similarity: ``cosine``, ``dot``, or ``auto``: what the checkpoint says, cosine where it says nothing.
        scale: Factor on the similarity in the softmax (1 / temperature); not given: 20 for cosine, 1 for dot product.
        query_prompt: Put before every query; not given: the checkpoint's own, if it has one.
        passage_prompt: Put before every passage; not given: the checkpoint's own, if it has one.
        max_tokens: Longest input in tokens; not given: the checkpoint's own limit.
        query_max_tokens: The same for queries; not given: as passages.
        sentences: How passages are read. ``none``: a vector a passage; ``token``: a vector a sentence, at its
            ``<sent>`` token (DCSR); ``mean``: a vector a sentence, the mean over its tokens.
        precision: Of the weights and the matrix products: ``auto`` is bfloat16 where the processor computes in it.
        token_budget: Tokens in one batch; where texts are padded, with their padding.
        window: Texts that are sorted by length together; also the rows of one shard.
        api: The endpoint that encodes, where one does.
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
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    token_budget: int = Field(4096, ge=1)
    window: int = Field(1024, ge=1)
    api: EndpointSettings = EndpointSettings()

    @model_validator(mode="before")
    @classmethod
    def _named_as_endpoint(cls, values: Any) -> Any:
        """With an endpoint, ``checkpoint`` is a model's name there."""
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
    def _without_what_is_not_there(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """An encoder that is no endpoint is written as before there were any."""
        values: dict[str, Any] = dump(self)
        if self.api.endpoint is None:
            values.pop("api", None)
        return values

    @property
    def is_checkpoint(self) -> bool:
        """Whether the encoder's weights are files of ours to open: neither an endpoint, a function nor mere vectors."""
        return not self.checkpoint.startswith((ENDPOINT, FUNCTION, VECTORS))


class CrossEncoderSettings(Settings):
    """How pairs of texts are read together.

    Attributes:
        checkpoint: Name or path of a cross-encoder: a sequence classifier with one or two labels.
        max_tokens: Longest pair in tokens, special ones included; the longer text is cut first; not given: the
            checkpoint's own limit.
        precision: Of the weights and the matrix products: ``auto`` is bfloat16 where the processor computes in it.
        token_budget: Tokens in one batch.
    """

    checkpoint: str
    max_tokens: int | None = Field(192, ge=8)
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    token_budget: int = Field(4096, ge=1)
