"""Kinds of FAISS index: which one suits a corpus, the size of a vector in it, and its search parameters."""

from __future__ import annotations

import re
from typing import Any

from gnnretrieval.encoders.faiss_search import import_faiss
from gnnretrieval.errors import InputError

EXACT = "Flat"
_EXACT_BYTES = 2**30  # of float32 vectors: comparing one question with them takes about a tenth of a second
_LADDER = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096, 8192)
_REFINED = (1, 2, 4, 8, 16, 32)


def factory_for(count: int, dimension: int, memory: int) -> str:
    """The factory of ``auto``: exact if affordable, else inverted lists, with codes chosen by ``memory`` bytes."""
    if 4 * count * dimension <= _EXACT_BYTES:
        return EXACT
    codes = "SQfp16" if 2 * count * dimension <= memory else "SQ8"
    return f"IVF{round(4 * count**0.5)},{codes}"


def empty_index(factory: str, dimension: int, seed: int) -> Any:
    """A new FAISS index by inner product, which learns with ``seed``.

    Raises:
        InputError: FAISS does not know the factory, cannot make it for this dimension, or only compares by distance.
    """
    faiss = import_faiss()
    try:
        index = faiss.index_factory(dimension, factory, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        raise InputError(
            f"factory {factory!r} is none that FAISS makes for vectors of {dimension} numbers ({reason_of(error)}). "
            "Write one such as Flat, IVF1024,SQ8, HNSW32 or PQ16."
        ) from None
    if index.metric_type != faiss.METRIC_INNER_PRODUCT:  # HNSW and NSG over PQ: FAISS ignores what it was given
        raise InputError(
            f"factory {factory!r} compares by distance in FAISS, and not by inner product. Give one such as Flat, "
            "IVF1024,SQ8, HNSW32 or HNSW32,SQ8."
        )
    if isinstance(core(index), faiss.IndexIDMap):
        raise InputError(f"factory {factory!r}: vectors are numbered here already. Leave IDMap out.")
    for part in (inverted_lists(index), core(index)):
        if part is not None and hasattr(part, "cp"):
            part.cp.seed += seed
            part.cp.min_points_per_centroid = 1  # FAISS would print warnings about few vectors
        if part is not None and hasattr(part, "pq"):
            part.pq.cp.seed += seed
            part.pq.cp.min_points_per_centroid = 1
            if hasattr(part, "do_polysemous_training"):  # takes minutes, for a filter that no search here uses
                part.do_polysemous_training = False
    outer = faiss.downcast_index(index)
    if isinstance(outer, faiss.IndexRefine):
        outer = faiss.downcast_index(outer.base_index)
    for number in range(outer.chain.size() if isinstance(outer, faiss.IndexPreTransform) else 0):
        transform = faiss.downcast_VectorTransform(outer.chain.at(number))
        if isinstance(transform, faiss.OPQMatrix):
            quantizer = faiss.ProductQuantizer(transform.d_out, transform.M, 8)
            quantizer.cp.min_points_per_centroid = 1
            quantizer.this.disown()  # FAISS uses it and never frees it: a few kilobytes
            transform.pq = quantizer
    return index


def reason_of(error: RuntimeError) -> str:
    """The message of FAISS's error, without the place in its source code."""
    said = " ".join(str(error).rsplit("Error: ", 1)[-1].split())
    return re.sub(r"^.*\.cpp:\d+: |^'.*?' failed:? ?", "", said).rstrip(".")


def core(index: Any) -> Any:
    """The index inside vector transforms, refinements and shards (the first shard's)."""
    faiss = import_faiss()
    index = faiss.downcast_index(index)
    while True:
        if isinstance(index, faiss.IndexPreTransform):
            index = faiss.downcast_index(index.index)
        elif isinstance(index, faiss.IndexRefine):
            index = faiss.downcast_index(index.base_index)
        elif isinstance(index, faiss.IndexShards):
            index = faiss.downcast_index(index.at(0))
        else:
            return index


def inverted_lists(index: Any) -> Any | None:
    """The IVF index inside ``index``; None if there is none."""
    inner = core(index)
    return inner if isinstance(inner, import_faiss().IndexIVF) else None


def vectors_of_graph(index: Any) -> Any | None:
    """The vectors of an HNSW index, as an index that searches all of them; None for another kind."""
    faiss, whole = import_faiss(), import_faiss().downcast_index(index)
    if isinstance(whole, faiss.IndexHNSW):
        return faiss.downcast_index(whole.storage)
    if not isinstance(core(whole), faiss.IndexHNSW):
        return None
    if isinstance(whole, faiss.IndexRefine):
        return faiss.downcast_index(whole.refine_index)
    if isinstance(whole, faiss.IndexPreTransform):
        transformed = faiss.IndexPreTransform(vectors_of_graph(whole.index))
        for number in reversed(range(whole.chain.size())):
            transformed.prepend_transform(whole.chain.at(number))
        return transformed
    vectors = faiss.IndexShards(int(whole.d), False, True)
    for number in range(whole.count()):
        vectors.add_shard(vectors_of_graph(whole.at(number)))
    return vectors


def bytes_per_vector(index: Any) -> int:
    """Approximate size of a vector in the index, in memory and on disk."""
    faiss = import_faiss()
    outer, inner = faiss.downcast_index(index), core(index)
    refined = int(faiss.downcast_index(outer.refine_index).code_size) if isinstance(outer, faiss.IndexRefine) else 0
    if isinstance(inner, faiss.IndexIVF):
        return int(inner.code_size) + 8 + refined
    if isinstance(inner, faiss.IndexHNSW):
        links = 4 * inner.hnsw.nb_neighbors(0) * 11 // 10 + 16
        return int(faiss.downcast_index(inner.storage).code_size) + int(links) + refined
    if isinstance(inner, faiss.IndexFlatCodes | faiss.IndexFastScan):
        return int(inner.code_size) + refined
    return 8 * int(index.d) + refined  # other kinds of graph: the vectors, and links of about the same size


def search_parameters(index: Any) -> dict[str, tuple[int, ...]]:
    """Search parameters of ``index``: the values of each, by name, from cheap to expensive.

    The last parameter affects the cost of a search most.
    """
    faiss = import_faiss()
    outer, inner, values = faiss.downcast_index(index), core(index), dict[str, tuple[int, ...]]()
    if isinstance(outer, faiss.IndexShards):
        outer = faiss.downcast_index(outer.at(0))
    if isinstance(outer, faiss.IndexRefine):
        values["k_factor_rf"] = _REFINED
    if isinstance(inner, faiss.IndexIVF):
        if isinstance(faiss.downcast_index(inner.quantizer), faiss.IndexHNSW):
            values["quantizer_efSearch"] = (64, 512)
        values["nprobe"] = (*(value for value in _LADDER if value < inner.nlist), int(inner.nlist))
    elif isinstance(inner, faiss.IndexHNSW):
        values["efSearch"] = tuple(value for value in _LADDER if 16 <= value <= 4096)
    return values


def set_search(index: Any, search: str) -> None:
    """Set search parameters of ``index``, such as ``nprobe=32``; an empty ``search`` changes nothing.

    Raises:
        InputError: The index has no such parameter, or the value is not a positive number.
    """
    if not search:
        return
    try:
        if not re.fullmatch(r"\w+=0*[1-9]\d*(,\w+=0*[1-9]\d*)*", search):
            raise RuntimeError
        import_faiss().ParameterSpace().set_index_parameters(index, search)
    except RuntimeError:
        known = ", ".join(search_parameters(index)) or "none"
        raise InputError(f"search {search!r} cannot be set: this kind has {known}. Write NAME=NUMBER.") from None
