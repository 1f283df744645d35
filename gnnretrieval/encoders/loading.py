"""Loading of checkpoints: from their directory alone, safetensors only, never their code.

Damage becomes an error of one sentence, and the libraries' log messages are silenced.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from gnnretrieval.encoders.checkpoint import Checkpoint
from gnnretrieval.encoders.foreign_code import refuse_foreign_code
from gnnretrieval.encoders.precision import computes_in_bfloat16
from gnnretrieval.encoders.prompts import Side
from gnnretrieval.errors import GnnRetrievalError, InputError
from gnnretrieval.platform.amx import avoid_hidden_amx


def weights_dtype(precision: str, device: torch.device) -> torch.dtype:
    """Type of the weights: ``precision``; for ``auto``, bfloat16 if ``device`` computes in it, else float32."""
    if precision == "bfloat16":
        avoid_hidden_amx()
    reduced = precision == "bfloat16" or (precision == "auto" and computes_in_bfloat16(device))
    return torch.bfloat16 if reduced else torch.float32


@contextmanager
def loading(checkpoint: Checkpoint) -> Iterator[None]:
    """Context in which a library loads ``checkpoint``.

    Raises:
        InputError: The library raised an error; its first line, with the directory. Or the checkpoint brings code.
    """
    refuse_foreign_code(checkpoint.directory)  # sentence-transformers before 6.0 runs modules that it names
    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)  # "creating a new one with mean pooling"
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    try:
        yield
    except GnnRetrievalError:
        raise
    except Exception as error:  # a damaged checkpoint can raise anything
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        raise InputError(
            f"this checkpoint cannot be loaded: {reason}. Save or download it again.", checkpoint.directory
        ) from error


# Kinds of models whose positions start after that of padding, as RoBERTa's.
_AFTER_PADDING = {
    *("camembert", "data2vec-text", "ibert", "longformer", "luke", "mpnet", "roberta", "roberta-prelayernorm"),
    *("xlm-roberta", "xlm-roberta-xl", "xmod"),
}
# By default, transformers asks at the terminal whether to run a checkpoint's code.
_UNTRUSTED: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


def load_sentence_transformer(checkpoint: Checkpoint, device: str | torch.device, **options: Any) -> Any:
    """The ``SentenceTransformer`` of a checkpoint, in float32.

    Args:
        checkpoint: Any Hugging Face or sentence-transformers checkpoint.
        device: Device of its weights.
        options: Options of its transformer, such as ``attn_implementation``.

    Raises:
        InputError: The checkpoint cannot be loaded, or its vectors have another width than it declares.
    """
    with loading(checkpoint):
        from sentence_transformers import SentenceTransformer

        model: Any = SentenceTransformer(
            str(checkpoint.directory),
            device=str(device),
            **_UNTRUSTED,
            model_kwargs={"dtype": torch.float32, "use_safetensors": True, **options},
        )
        _limit(model)
        # Some wrong settings of its modules fail only at the first text.
        width = model.encode(["a"], show_progress_bar=False).shape[1]
        declared = declared_width(model)
        if declared not in (None, width):
            raise ValueError(f"it says that its vectors have {declared} dimensions, and they have {width}")
        return model


def declared_width(model: Any) -> int | None:
    """Width of the vectors that a ``SentenceTransformer`` declares; None if it declares none."""
    newer, older = "get_embedding_dimension", "get_sentence_embedding_dimension"  # renamed in sentence-transformers
    width: int | None = getattr(model, newer if hasattr(model, newer) else older)()
    return width


def load_sparse_encoder(checkpoint: Checkpoint, device: str | torch.device, **options: Any) -> Any:
    """The ``SparseEncoder`` of a checkpoint, in float32: a masked language model, and SPLADE's pooling of its logits.

    Args:
        checkpoint: A SPLADE checkpoint, or any Hugging Face checkpoint; without a head for masked language modelling
            (:func:`has_language_model_head`) it gets a random one.
        device: Device of its weights.
        options: Options of its transformer, such as ``attn_implementation``.

    Raises:
        InputError: The checkpoint cannot be loaded, or has other modules than these two.
    """
    with loading(checkpoint):
        from sentence_transformers import SparseEncoder
        from sentence_transformers.sparse_encoder.modules import SpladePooling, Transformer

        options = {"dtype": torch.float32, "use_safetensors": True, **options}
        if is_splade(checkpoint):
            model: Any = SparseEncoder(
                str(checkpoint.directory), device=str(device), **_UNTRUSTED, model_kwargs=options
            )
        else:
            transformer = Transformer(
                str(checkpoint.directory),
                transformer_task="fill-mask",
                model_kwargs={**_UNTRUSTED, **options},
                processor_kwargs=dict(_UNTRUSTED),
                config_kwargs=dict(_UNTRUSTED),
            )
            model = SparseEncoder(modules=[transformer, SpladePooling("max")], device=str(device))
        if len(model) != 2 or type(model[1]) is not SpladePooling:
            raise ValueError("it has other modules than a masked language model and SPLADE's pooling")
        _limit(model)
        return model


def _limit(model: Any) -> None:
    """Cut texts after the last position, where a tokenizer without a limit makes sentence-transformers cut later."""
    positions = positions_of(getattr(getattr(model[0], "auto_model", None), "config", None))
    if positions is not None and (model.max_seq_length or positions) > positions:
        model.max_seq_length = positions


def has_language_model_head(checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint has a head for masked language modelling, as SPLADE needs."""
    try:
        config = json.loads((checkpoint.directory / "config.json").read_text(encoding="utf-8"))
        return any(str(name).endswith("ForMaskedLM") for name in config.get("architectures") or ())
    except (OSError, ValueError, AttributeError):
        return False


def is_splade(checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint in sentence-transformers' layout has SPLADE's pooling."""
    try:
        modules = json.loads((checkpoint.directory / "modules.json").read_text(encoding="utf-8"))
        return any(str(module.get("type")).endswith(".SpladePooling") for module in modules)
    except (OSError, ValueError, AttributeError, TypeError):  # a damaged list fails when it is loaded
        return False


def load_language_model(checkpoint: Checkpoint, **options: Any) -> tuple[Any, dict[str, Any]]:
    """As :func:`load_classifier`, with a head for masked language modelling."""
    return _load_with_head("AutoModelForMaskedLM", checkpoint, options)


def load_classifier(checkpoint: Checkpoint, **options: Any) -> tuple[Any, dict[str, Any]]:
    """A checkpoint as a sequence classifier in float32, and a report of its missing and unused weights.

    Args:
        checkpoint: Any Hugging Face checkpoint.
        options: Options for transformers, such as ``num_labels``.

    Raises:
        InputError: The checkpoint cannot be loaded.
    """
    return _load_with_head("AutoModelForSequenceClassification", checkpoint, options)


def load_reader(checkpoint: Checkpoint, **options: Any) -> tuple[Any, dict[str, Any]]:
    """As :func:`load_classifier`, with a head for the first and last tokens of answers."""
    return _load_with_head("AutoModelForQuestionAnswering", checkpoint, options)


def _load_with_head(kind: str, checkpoint: Checkpoint, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    with loading(checkpoint):
        import transformers

        model, report = getattr(transformers, kind).from_pretrained(
            checkpoint.directory,
            dtype=torch.float32,
            use_safetensors=True,
            output_loading_info=True,
            **_UNTRUSTED,
            **options,
        )
        heads = getattr(model.config, "num_attention_heads", 1)
        if heads < 1:  # transformers only checks that it divides the width
            raise ValueError(f"it says that it has {heads} attention heads")
        return model, report


def load_tokenizer(checkpoint: Checkpoint, folder: Path | None = None) -> Any:
    """The tokenizer of a checkpoint, or in ``folder`` of it.

    Raises:
        InputError: The tokenizer cannot be loaded.
    """
    with loading(checkpoint):
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(str(folder or checkpoint.directory), **_UNTRUSTED)


def check_vocabulary(known: int, rows: int, checkpoint: Checkpoint) -> None:
    """Check that the tokenizer does not know more tokens than the weights have rows.

    Raises:
        InputError: ``known`` is more than ``rows``.
    """
    if known > rows:
        raise InputError(
            f"its tokenizer knows {known:,} tokens, and its weights have {rows:,}: another vocabulary. "
            "Give the tokenizer that belongs to these weights.",
            checkpoint.directory,
        )


def positions_of(config: Any) -> int | None:
    """Number of tokens that a model has positions for, from its configuration; None if that does not limit them."""
    names = ("max_position_embeddings", "model_type", "pad_token_id")
    get = Mapping.get if isinstance(config, Mapping) else getattr
    positions, kind, padding = (get(config, name, None) for name in names)
    if positions is None or positions < 0:
        return None
    return int(positions) - (1 + (1 if padding is None else padding) if kind in _AFTER_PADDING else 0)


def check_max_tokens(
    max_tokens: int | None, positions: int | None, checkpoint: Checkpoint, name: str = "max_tokens"
) -> None:
    """Check that ``max_tokens``, a setting called ``name``, is at most a checkpoint's number of positions.

    Raises:
        InputError: It is more than ``positions``; not if either is None.
    """
    if max_tokens is not None and positions is not None and max_tokens > positions:
        raise InputError(
            f"this checkpoint has positions for {positions} tokens, and {name} is {max_tokens}: give at most that.",
            checkpoint.directory,
        )


def check_room(
    max_tokens: int | None, tokenizer: Any, checkpoint: Checkpoint, name: str = "max_tokens", markers: int = 0
) -> None:
    """Check that ``max_tokens`` leaves room for a token of the text: below that, tokenizers cut nothing at all.

    Args:
        max_tokens: The limit; None: there is none.
        tokenizer: The checkpoint's tokenizer.
        checkpoint: The checkpoint, named in errors.
        name: Name of the setting.
        markers: Number of tokens beside the tokenizer's special ones.

    Raises:
        InputError: It does not.
    """
    if max_tokens is None or not hasattr(tokenizer, "pad"):  # static embeddings read a text of any length
        return
    least = int(tokenizer.num_special_tokens_to_add()) + markers + 1
    if max_tokens < least:
        raise InputError(
            f"{name} is {max_tokens}: give at least {least}, for a token of the text beside the special ones.",
            checkpoint.directory,
        )


def check_one_vocabulary(tokenizers: Mapping[Side, Any], query: Checkpoint, passage: str) -> None:
    """Check that queries and passages have one vocabulary, where a term or token is compared by its number.

    Args:
        tokenizers: Tokenizer of each side.
        query: The checkpoint of queries, named in the error.
        passage: The checkpoint of passages, likewise.

    Raises:
        InputError: They do not.
    """
    if tokenizers["query"].get_vocab() != tokenizers["passage"].get_vocab():
        raise InputError(
            f"its vocabulary is not that of {passage}, and a term is known by its number: give two encoders of one "
            "vocabulary.",
            query.directory,
        )
