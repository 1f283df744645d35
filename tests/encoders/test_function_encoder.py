import numpy as np
import pytest
import torch

from gnnretrieval import Retriever
from gnnretrieval.data import Dataset
from gnnretrieval.encoders import FunctionEncoder
from gnnretrieval.encoders.dual_encoder import DualEncoder
from gnnretrieval.encoders.features import encode_dataset
from gnnretrieval.errors import ArtifactError, GnnRetrievalError, InputError
from gnnretrieval.index import build_index


@pytest.fixture(scope="module")
def dual(tiny_settings):
    return DualEncoder(tiny_settings)


@pytest.fixture(scope="module")
def encoder(dual):
    return FunctionEncoder(
        lambda texts: dual.encode(texts, "passage"), lambda texts: dual.encode(texts, "query"), name="tiny"
    )


@pytest.fixture(scope="module")
def made(encoder, tiny_dataset, tmp_path_factory):
    place = tmp_path_factory.mktemp("function")
    features = encode_dataset(Dataset.open(tiny_dataset), encoder, place / "features")
    return build_index(features, place / "index").path


def test_its_features_are_the_function_s_vectors(made, tiny_features):
    from gnnretrieval.encoders.features import open_features

    features = open_features(made.parent / "features")
    np.testing.assert_allclose(features.passages, tiny_features.passages, rtol=1e-3)
    np.testing.assert_allclose(features.queries, tiny_features.queries, rtol=1e-3)
    assert features.meta["encoder"]["checkpoint"] == "function:tiny"


def test_an_index_is_searched_with_the_function_and_asked_stored_questions_without(made, encoder, tiny_dataset):
    question = Dataset.open(tiny_dataset).queries_of("test")[0].text
    with_it, without = Retriever.open(made, encoder=encoder), Retriever.open(made)
    assert [hit.id for hit in with_it.search(question, 3)] == [hit.id for hit in without.search(question, 3)]
    assert with_it.search("another question", 3)
    with pytest.raises(InputError, match=r"none of the 80 stored questions, and the encoder \(function:tiny\) is not"):
        without.search("another question")


def test_another_function_of_that_name_is_noticed(made, dual):
    other = FunctionEncoder(lambda texts: dual.encode(texts, "query")[:, ::-1].copy(), name="tiny")
    with pytest.raises(ArtifactError, match="gives other vectors now than when this was made"):
        Retriever.open(made, encoder=other)
    named = FunctionEncoder(lambda texts: dual.encode(texts, "query"), name="another")
    with pytest.raises(ArtifactError, match="encoded by function:tiny, and this is function:another"):
        Retriever.open(made, encoder=named)


def test_an_earlier_version_s_encoder_is_reused_only_if_it_made_the_vectors(
    made, encoder, dual, tiny_dataset, tmp_path
):
    older = Retriever.open(made, encoder=encoder)
    assert Retriever.open(made, encoder=encoder, older=older).encoder is older.encoder
    turned = FunctionEncoder(lambda texts: dual.encode(texts, "query")[:, ::-1].copy(), name="tiny")
    features = encode_dataset(Dataset.open(tiny_dataset), turned, tmp_path / "features")
    newer = build_index(features, tmp_path / "index").path
    with pytest.raises(ArtifactError, match="gives other vectors now than when this was made"):
        Retriever.open(newer, encoder=encoder, older=older)
    assert Retriever.open(newer, encoder=turned, older=older).encoder is turned


def numbers_of(seed, fails=False):
    """An encoder "numbers": vectors drawn by a seed and the text."""

    def encode(texts):
        if fails and "text 1500" in texts:
            raise RuntimeError("out of memory")
        return np.stack([np.random.default_rng([seed, *text.encode()]).normal(size=8) for text in texts])

    return FunctionEncoder(encode, name="numbers")


def test_half_made_features_are_not_finished_by_another_model(tmp_path):
    passages = {f"p{row}": f"text {row}" for row in range(2000)}
    dataset = Dataset.from_records(passages, {"q": "question"}, {"q": "p0"}, tmp_path / "data")
    with pytest.raises(RuntimeError, match="out of memory"):
        encode_dataset(dataset, numbers_of(1, fails=True), tmp_path / "features")
    with pytest.raises(ArtifactError, match="half made by another model than function:numbers has now"):
        encode_dataset(dataset, numbers_of(2), tmp_path / "features")
    made = encode_dataset(dataset, numbers_of(2), tmp_path / "features", overwrite=True)
    anew = encode_dataset(dataset, numbers_of(2), tmp_path / "anew")
    np.testing.assert_array_equal(made.passages, anew.passages)
    assert encode_dataset(dataset, numbers_of(3), tmp_path / "features").hash == made.hash  # it is not asked
    before = np.array(made.passages)
    again = encode_dataset(dataset, numbers_of(2), tmp_path / "features", overwrite=True)
    assert again.meta["made"] == made.meta["made"]
    third = encode_dataset(dataset, numbers_of(3), tmp_path / "features", overwrite=True)
    assert not np.array_equal(third.passages, before)


def test_numbers_that_float16_does_not_have_are_refused(tmp_path):
    dataset = Dataset.from_records({"p": "text"}, {"q": "question"}, {"q": "p"}, tmp_path / "data")
    large = FunctionEncoder(lambda texts: np.full((len(texts), 4), 70_000.0), name="large", similarity="dot")
    with pytest.raises(ArtifactError, match="numbers up to 70,000, and they are stored in float16"):
        encode_dataset(dataset, large, tmp_path / "features")


def test_vectors_that_differ_by_rounding_are_the_same_encoder_s(made, dual):
    rounded = FunctionEncoder(
        lambda texts: dual.encode(texts, "passage").astype(np.float16),
        lambda texts: torch.from_numpy(dual.encode(texts, "query")).bfloat16(),
        name="tiny",
    )
    opened = Retriever.open(made, encoder=rounded)
    assert opened.encoder is rounded
    assert len(opened.search("another question", 3)) == 3


def test_a_function_whose_vectors_begin_with_zeros_is_the_same_when_it_is_opened_again(tmp_path):
    def by_words(texts):
        vectors = np.zeros((len(texts), 200))
        for vector, text in zip(vectors, texts, strict=True):
            vector[[50 + sum(word.encode()) % 150 for word in text.split()]] = 1.0
        return vectors

    dataset = Dataset.from_records({"p": "one text", "o": "another"}, {"q": "one"}, {"q": "p"}, tmp_path / "data")
    encoder = FunctionEncoder(by_words, name="words")
    made = build_index(encode_dataset(dataset, encoder, tmp_path / "features"), tmp_path / "index")
    assert [hit.id for hit in Retriever.open(made.path, encoder=encoder).search("one", 1)] == ["p"]
    dense = FunctionEncoder(lambda texts: by_words(texts) + 1, name="words")
    with pytest.raises(ArtifactError, match="gives other vectors now"):
        Retriever.open(made.path, encoder=dense)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda texts: [[1.0]] * (len(texts) + 1), r"gave an array \(3, 1\) for 2 texts"),
        (lambda texts: [1.0, 2.0], r"gave an array \(2,\) for 2 texts"),
        (lambda texts: [[np.nan]] * len(texts), "NaN or infinite"),
        (lambda texts: [[0.0]] * len(texts), "zeros, which has no cosine"),
        (lambda texts: ["a", "b"], "no array of numbers"),
        (lambda texts: [[1.0], [1.0, 2.0]], "no array of numbers"),
    ],
)
def test_what_is_no_vector_a_text_is_a_sentence(function, message):
    with pytest.raises(InputError, match=message):
        FunctionEncoder(function, name="f").encode(["a", "b"], "query")


def test_a_width_that_changes_is_a_sentence():
    encoder = FunctionEncoder(lambda texts: np.ones((len(texts), len(texts))), name="f")
    encoder.encode(["a"], "query")
    with pytest.raises(InputError, match=r"gave an array \(2, 2\) for 2 texts; wanted \(2, 1\)"):
        encoder.encode(["a", "b"], "passage")


def test_a_nameless_function_is_refused_and_a_command_cannot_open_one(tiny_settings):
    with pytest.raises(InputError, match="give name="):
        FunctionEncoder(lambda texts: texts)

    def by_its_name(texts):
        return np.ones((len(texts), 4))

    assert "by_its_name" in repr(FunctionEncoder(by_its_name))
    from gnnretrieval.encoders.opening import open_encoder

    with pytest.raises(GnnRetrievalError, match="which only Python can give"):
        open_encoder(FunctionEncoder(by_its_name).settings)
