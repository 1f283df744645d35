import pytest

from gnnretrieval.errors import InputError
from gnnretrieval.index.kinds import bytes_per_vector, empty_index, factory_for, search_parameters, set_search


def test_exact_search_is_the_default_where_it_is_affordable():
    assert factory_for(100_000, 384, 4 * 2**30) == "Flat"
    assert factory_for(699_000, 384, 2**30) == "Flat"


def test_above_that_lists_of_vectors_that_fit_the_memory():
    assert factory_for(1_000_000, 384, 4 * 2**30) == "IVF4000,SQfp16"
    assert factory_for(1_000_000, 384, 2**29) == "IVF4000,SQ8"


@pytest.mark.parametrize(
    ("factory", "size"),
    [
        ("Flat", 64),
        ("SQ8", 16),
        ("PQ4", 4),
        ("PQ4x4fs", 2),
        ("IVF8,PQ4x4fs", 10),
        ("IVF8,SQfp16", 40),
        ("OPQ4,IVF8,PQ4", 12),
        ("IVF8,PQ4,RFlat", 76),
    ],
)
def test_bytes_per_vector_are_codes_and_numbers(factory, size):
    assert bytes_per_vector(empty_index(factory, 16, 0)) == size


def test_a_graph_of_vectors_takes_its_links_too():
    assert 64 + 4 * 2 * 8 < bytes_per_vector(empty_index("HNSW8", 16, 0)) < 64 + 8 * 2 * 8 + 16


@pytest.mark.parametrize(
    ("factory", "names"),
    [
        ("Flat", []),
        ("PQ4", []),
        ("IVF8,SQ8", ["nprobe"]),
        ("OPQ4,IVF8,PQ4", ["nprobe"]),
        ("HNSW8", ["efSearch"]),
        ("IVF8,PQ4,RFlat", ["k_factor_rf", "nprobe"]),
        ("IVF8_HNSW4,Flat", ["quantizer_efSearch", "nprobe"]),
    ],
)
def test_what_can_be_set_can_be_set(factory, names):
    index = empty_index(factory, 16, 0)
    found = search_parameters(index)
    assert list(found) == names
    for name, values in found.items():
        assert list(values) == sorted(values)
        set_search(index, f"{name}={values[-1]}")
    assert "nprobe" not in found or found["nprobe"][-1] == 8  # all lists


@pytest.mark.parametrize("search", ["efSearch=3", "nprobe", "nprobe=x", "nprobe=0", "nprobe=2;", "nprobe=-1"])
def test_what_cannot_be_set_is_said_with_what_can(search):
    with pytest.raises(InputError, match="this kind has nprobe"):
        set_search(empty_index("IVF8,Flat", 16, 0), search)


@pytest.mark.parametrize(("factory", "why"), [("nonsense", "could not parse"), ("PQ5", "multiple of")])
def test_a_factory_that_faiss_has_not_is_said_in_a_sentence(factory, why):
    with pytest.raises(InputError, match=f"factory '{factory}' is none that FAISS makes for vectors of 16.*{why}"):
        empty_index(factory, 16, 0)


@pytest.mark.parametrize(
    ("factory", "why"),
    [
        ("HNSW8,PQ4", "compares by distance"),
        ("HNSW8,PQ4,RFlat", "compares by distance"),
        ("IDMap,Flat", "Leave IDMap out"),
        ("PCA8,IDMap,Flat", "Leave IDMap out"),
    ],
)
def test_a_factory_that_could_not_be_filled_or_searched_is_refused_before_anything_is_built(factory, why):
    with pytest.raises(InputError, match=f"factory '{factory}'.*{why}"):
        empty_index(factory, 16, 0)
