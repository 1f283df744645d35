import json
import shutil

import pytest

from gnnretrieval.data import Dataset, inspect_dataset
from gnnretrieval.encoders import DualEncoder
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.token_counts import EncoderTokens
from gnnretrieval.errors import InputError


@pytest.fixture
def checkpoint(tiny_checkpoint, tmp_path):
    """A copy of the tiny checkpoint, to change."""
    return shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint")


def change(path, **values) -> None:
    said = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(said | values))


@pytest.mark.parametrize("own", [64, 20, None])
def test_counts_and_limits_are_the_dual_encoder_s_own(checkpoint, own):
    if own is not None:
        change(checkpoint / "sentence_bert_config.json", max_seq_length=own)
    settings = EncoderSettings(checkpoint=str(checkpoint), precision="float32")
    counter, encoder = EncoderTokens(settings), DualEncoder(settings)
    model = encoder._passage_model
    assert counter.limits == {"passage": model.max_seq_length, "query": model.max_seq_length}
    for text in ("a", "one two three", "x y " * 40, ""):
        read = model.tokenizer([text], truncation=True, max_length=model.max_seq_length)["input_ids"][0]
        (count,) = counter.count([text], "passage")
        assert min(count, model.max_seq_length) == len(read)


def test_special_tokens_are_counted_and_nothing_is_cut(tiny_checkpoint):
    counter = EncoderTokens(EncoderSettings(checkpoint=str(tiny_checkpoint)))
    assert counter.count(["a a a", "", "a " * 500], "query").tolist() == [5, 2, 502]
    assert counter.name == str(tiny_checkpoint)


def test_limits_that_are_given_and_a_limit_for_queries(tiny_checkpoint):
    settings = EncoderSettings(checkpoint=str(tiny_checkpoint), max_tokens=32, query_max_tokens=8)
    assert EncoderTokens(settings).limits == {"passage": 32, "query": 8}
    with pytest.raises(InputError, match="positions for 64 tokens, and query_max_tokens is 65"):
        EncoderTokens(EncoderSettings(checkpoint=str(tiny_checkpoint), query_max_tokens=65))


def test_prompts_are_counted_the_checkpoint_s_own_or_given_ones(checkpoint):
    change(checkpoint / "config_sentence_transformers.json", prompts={"query": "a a", "document": "a"})
    counter = EncoderTokens(EncoderSettings(checkpoint=str(checkpoint)))
    assert [counter.count([" b"], side).tolist() for side in ("query", "passage")] == [[5], [4]]
    given = EncoderTokens(EncoderSettings(checkpoint=str(checkpoint), query_prompt=""))
    assert given.count([" b"], "query").tolist() == [3]


def test_queries_with_an_encoder_of_their_own(tiny_checkpoint, checkpoint):
    change(checkpoint / "sentence_bert_config.json", max_seq_length=10)
    settings = EncoderSettings(checkpoint=str(tiny_checkpoint), query_checkpoint=str(checkpoint))
    assert EncoderTokens(settings).limits == {"passage": 64, "query": 10}


def test_no_weights_are_read(checkpoint):
    (weights,) = checkpoint.glob("*.safetensors")
    weights.write_bytes(b"")
    assert EncoderTokens(EncoderSettings(checkpoint=str(checkpoint))).count(["a"], "query").tolist() == [3]


def test_a_broken_tokenizer_is_a_sentence(checkpoint):
    (checkpoint / "tokenizer.json").write_text("nonsense")
    with pytest.raises(InputError, match="this checkpoint cannot be loaded"):
        EncoderTokens(EncoderSettings(checkpoint=str(checkpoint)))


def test_a_checkpoint_without_a_transformer_is_refused(checkpoint):
    (checkpoint / "modules.json").write_text(json.dumps([{"path": "none", "type": "sentence_transformers.models.X"}]))
    with pytest.raises(InputError, match="has no transformer, so its tokens cannot be counted"):
        EncoderTokens(EncoderSettings(checkpoint=str(checkpoint)))


def test_the_share_that_is_cut_by_hand(tiny_dataset, tiny_checkpoint):
    dataset = Dataset.open(tiny_dataset)
    counter = EncoderTokens(EncoderSettings(checkpoint=str(tiny_checkpoint), max_tokens=15, query_max_tokens=None))
    tokens = inspect_dataset(dataset, counter).tokens
    counts = counter.count([passage.full_text for passage in dataset.passages()], "passage")
    assert tokens.encoder == str(tiny_checkpoint)
    passages = tokens.passages
    assert (passages.texts, passages.of, passages.limit, passages.max) == (40, 40, 15, counts.max())
    assert 0 < passages.cut == (counts > 15).sum() < 40
    assert passages.share_cut == passages.cut / 40
    assert passages.tokens_lost == sum(count - 15 for count in counts if count > 15)
    assert passages.share_lost == pytest.approx(passages.tokens_lost / counts.sum())
    assert tokens.queries.of == 80
