"""Any Python function as an encoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.encoders.prompts import Side
from gnnretrieval.encoders.settings import FUNCTION, EncoderSettings
from gnnretrieval.encoders.similarity import similarity_of
from gnnretrieval.encoders.text_encoder import TextEncoder
from gnnretrieval.errors import InputError
from gnnretrieval.storage.provenance import sha256_of_json

Encode = Callable[[Sequence[str]], Any]


class FunctionEncoder:
    """Encoder made of functions that take a list of texts and return an array or tensor ``(texts, d)``.

    .. code-block:: python

        encoder = FunctionEncoder(model.encode, name="my-model")
        encoder = FunctionEncoder(lambda texts: my_api(texts, kind="document"),
                                  query=lambda texts: my_api(texts, kind="query"), name="my-api")

    Give it again to open an index that was made with it: ``Retriever.open(path, encoder=encoder)``. The vectors of a
    few fixed texts, kept with the features, then show whether it still computes the same.

    Args:
        passage: Encodes passages.
        query: Encodes queries; None: ``passage`` encodes them.
        name: Its name in artifacts; None: the qualified name of ``passage``.
        similarity: How its vectors are compared.
        scale: Factor on the similarity in the softmax (1 / temperature); None: 20 for cosine, 1 for dot product.

    Raises:
        InputError: There is no name: ``passage`` is a lambda or an object without one, and ``name`` is not given; or
            ``similarity`` or ``scale`` has no such value.
    """

    source = "a Python function"

    def __init__(
        self,
        passage: Encode,
        query: Encode | None = None,
        *,
        name: str | None = None,
        similarity: Literal["cosine", "dot"] = "cosine",
        scale: float | None = None,
    ) -> None:
        name = name or getattr(passage, "__qualname__", "")
        if not name or "<lambda>" in name:
            raise InputError("this encoder has no name, by which it is known again: give name=…")
        self._functions: dict[Side, Encode] = {"passage": passage, "query": query or passage}
        given = {"checkpoint": f"{FUNCTION}{name}", "similarity": similarity, "scale": scale}
        self.settings = EncoderSettings.parse(given)
        self.similarity = similarity_of(self.settings, says_dot=False)
        self._dimension: int | None = None

    def __repr__(self) -> str:
        return f"FunctionEncoder(name={self.settings.checkpoint.removeprefix(FUNCTION)!r})"

    @property
    def dimension(self) -> int:
        """Width ``d`` of a vector; calls the function if it is not known yet."""
        if self._dimension is None:
            self.encode(["a"], "query")
        assert self._dimension is not None
        return self._dimension

    @property
    def fingerprint(self) -> dict[str, str]:
        """Hash of its name and similarity, by side; only the canary shows what the function computes."""
        hash_ = sha256_of_json({"name": self.settings.checkpoint, "similarity": self.similarity.model_dump()})
        return {"query": hash_, "passage": hash_}

    def encode(self, texts: Sequence[str], side: Side) -> NDArray[np.float32]:
        """Vectors ``(len(texts), d)`` float32, of length 1 if the similarity is cosine.

        Raises:
            InputError: The function did not return one finite vector per text, all of one width, or returned a zero
                vector for cosine.
        """
        if not texts:
            return np.empty((0, self.dimension), dtype=np.float32)
        output = self._functions[side](list(texts))
        array = output.detach().cpu().float() if hasattr(output, "detach") else output
        return self.similarity.prepare_array(self._checked(array, len(texts)))

    def _checked(self, output: Any, count: int) -> NDArray[np.float32]:
        try:
            vectors = np.asarray(output, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise InputError(f"{self!r} gave no array of numbers ({error}).") from None
        wanted = f"({count}, {self._dimension or 'd'})"
        if vectors.ndim != 2 or len(vectors) != count or self._dimension not in (None, vectors.shape[1]):
            raise InputError(f"{self!r} gave an array {vectors.shape} for {count} texts; wanted {wanted}.")
        if not np.isfinite(vectors).all():
            raise InputError(f"{self!r} gave a number that is NaN or infinite.")
        if self.similarity.normalize and not np.linalg.norm(vectors, axis=1).all():
            raise InputError(f"{self!r} gave a vector of zeros, which has no cosine.")
        self._dimension = int(vectors.shape[1])
        return vectors


def as_encoder(
    encode: str | EncoderSettings | TextEncoder | Encode | None, similarity: Literal["cosine", "dot"] = "cosine"
) -> str | EncoderSettings | TextEncoder | None:
    """Wrap a function as an encoder; return anything else unchanged.

    Raises:
        InputError: It is none of these.
    """
    if encode is None or isinstance(encode, str | EncoderSettings) or hasattr(encode, "fingerprint"):
        return encode  # type: ignore[return-value]
    if not callable(encode):
        raise InputError(f"encode is {encode!r}: give a checkpoint's name, settings, an encoder or a function.")
    return FunctionEncoder(
        encode, name=getattr(encode, "__qualname__", "encode").replace("<lambda>", "lambda"), similarity=similarity
    )


def as_recorded(encode: TextEncoder | Encode, settings: EncoderSettings) -> TextEncoder:
    """Wrap a function as the encoder that an artifact's ``settings`` name; return an encoder unchanged.

    Raises:
        InputError: The artifact was not encoded by a function, or this is none.
    """
    if hasattr(encode, "fingerprint"):
        return encode  # type: ignore[return-value]
    if not callable(encode) or not settings.checkpoint.startswith(FUNCTION):
        raise InputError(
            f"encoder is {encode!r}, and the vectors are by {settings.checkpoint}: give its encoder, or nothing."
        )
    name, similarity = settings.checkpoint.removeprefix(FUNCTION), settings.similarity
    kind: Literal["cosine", "dot"] = "dot" if similarity == "dot" else "cosine"
    return FunctionEncoder(encode, name=name, similarity=kind, scale=settings.scale)
