import numpy as np
import pytest
import torch

from gnnretrieval.data import Dataset
from gnnretrieval.encoders.dual_encoder import DualEncoder
from gnnretrieval.encoders.features import encode_dataset, open_features
from gnnretrieval.encoders.maxsim import maxsim, restored
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.errors import ArtifactError, GnnRetrievalError, InputError
from gnnretrieval.index import build_index
from gnnretrieval.index.late_search import late_run
from gnnretrieval.losses import contrastive_loss
from gnnretrieval.mining.examples import Candidate, Example
from gnnretrieval.training.encoder.dual_towers import Start, make_towers
from gnnretrieval.training.encoder.late_task import LateInteractionTask
from gnnretrieval.training.encoder.pair_data import Texts
from gnnretrieval.training.encoder.settings import DualEncoderTrainSettings, require_fit
from gnnretrieval.training.encoder.train_encoder import train_dual_encoder

SETTINGS = DualEncoderTrainSettings(
    shared=True, epochs=2, batch_size=16, learning_rate=1e-3, dropout=0.0, precision="float32", hard_negatives=0
)
TEXTS = Texts({"q1": "bada?", "q2": "gogo?"}, {"p1": "Bada dada.", "p2": "Kobe sefi, lumi."})
EXAMPLES = [
    Example("q1", (Candidate("p1", "label"),), ()),
    Example("q2", (Candidate("p2", "label"),), ()),
]


def settings_of(checkpoint, **more):
    return EncoderSettings(
        checkpoint=str(checkpoint), late_interaction=8, max_tokens=32, query_max_tokens=12, precision="float32", **more
    )


def task_of(checkpoint, **changed):
    start = Start.of(settings_of(checkpoint))
    towers = make_towers(start, shared=True, device=torch.device("cpu"), seed=0, dropout=0.0)
    settings = SETTINGS.model_copy(update=changed)
    return towers, LateInteractionTask(EXAMPLES, TEXTS, towers, start.similarity, settings, None)


def test_the_loss_is_contrastive_over_the_scaled_mean_of_maxima(tiny_checkpoint):
    towers, task = task_of(tiny_checkpoint)
    batch = task.batch(0, 0)
    with torch.no_grad():
        rows = torch.cat([towers[item.tower].rows([item]) for item in batch.items])
    queries = rows[:24].view(2, 12, 8)  # 12 tokens each
    counts = torch.tensor([item.rows for item in batch.items[2:]])
    scores = 20.0 * maxsim(queries, rows[24:], counts) / 12
    relevant = torch.eye(2, dtype=torch.bool)
    torch.testing.assert_close(batch.loss(rows), contrastive_loss(scores, torch.arange(2), relevant))


def test_rows_are_unit_vectors_of_all_tokens_but_punctuation(tiny_checkpoint):
    towers, _ = task_of(tiny_checkpoint)
    (item,) = towers["passage"].items("passage", ["kobe sefi, lumi."])
    assert item.rows == len(item.ids) - 2
    rows = towers["passage"].rows([item])
    assert rows.shape == (item.rows, 8)
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(item.rows))


def test_separate_towers_start_with_one_projection(tiny_checkpoint):
    start = Start.of(settings_of(tiny_checkpoint))
    towers = make_towers(start, shared=False, device=torch.device("cpu"), seed=0, dropout=0.0)
    assert towers["query"].module is not towers["passage"].module
    with torch.no_grad():
        question, passage = (towers[side].rows(towers[side].items(side, ["bada gogo"])) for side in towers)
    assert float((question[0] * passage[0]).sum()) > 0.9  # both are [CLS]


def test_settings_that_need_one_vector_per_text_are_refused(tiny_checkpoint):
    with pytest.raises(GnnRetrievalError, match="does not train with loss = pair"):
        require_fit(DualEncoderTrainSettings(loss="pair"), settings_of(tiny_checkpoint), is_joint=False)


def test_the_trained_encoder_gives_the_vectors_of_its_tower(tiny_late_encoder):
    encoder = DualEncoder(EncoderSettings(checkpoint=str(tiny_late_encoder.path), precision="float32"))
    start = Start.of(EncoderSettings(checkpoint=str(tiny_late_encoder.path)))
    towers = make_towers(start, shared=True, device=torch.device("cpu"), seed=5)
    for side, text in (("query", "bada gogo"), ("passage", "kobe sefi, lumi.")):
        made = encoder.encode_tokens([text, "dada"], side)
        with torch.no_grad():
            towers[side].module.eval()
            rows = towers[side].rows(towers[side].items(side, [text, "dada"]))
        np.testing.assert_allclose(made.vectors, rows.numpy(), atol=2e-5)
    assert encoder.dimension == 8


def test_the_artifact_opens_as_it_was_trained(tiny_late_encoder):
    its = tiny_late_encoder.meta["encoder"]
    assert (its["late_interaction"], its["max_tokens"], its["query_max_tokens"]) == (8, 32, 12)
    assert tiny_late_encoder.meta["dimension"] == 8


def test_features_have_a_vector_per_token_and_their_means(tiny_late):
    assert tiny_late.has_tokens
    starts = tiny_late.token_starts
    assert len(starts) == 41
    own = restored(tiny_late.tokens[starts[3] : starts[4]])
    mean = torch.nn.functional.normalize(own.mean(0), dim=0)
    np.testing.assert_allclose(tiny_late.passages[3], mean.numpy(), atol=2e-3)
    assert tiny_late.query_tokens.shape == (80, 12, 8)


def test_a_run_ranks_all_passages_by_maxsim(tiny_late, tiny_dataset):
    query = Dataset.open(tiny_dataset).query_ids[70]
    (ranking,) = late_run(tiny_late, [query], 40).values()
    counts = torch.from_numpy(np.diff(tiny_late.token_starts))
    asked = torch.from_numpy(np.array(tiny_late.query_tokens[70:71])).float()
    scores = maxsim(asked, restored(tiny_late.tokens), counts)[0]
    assert len(ranking) == 40
    assert ranking[0].score == pytest.approx(float(scores.max()), abs=1e-5)
    best = Dataset.open(tiny_dataset).passage_ids[int(scores.argmax())]
    assert ranking[0].passage_id == best


def test_int8_takes_half_the_bytes_and_ranks_alike(tiny_late, tiny_late_encoder, tiny_dataset, tmp_path):
    dataset = Dataset.open(tiny_dataset)
    settings = EncoderSettings(checkpoint=str(tiny_late_encoder.path), token_storage="int8")
    small = open_features(encode_dataset(dataset, settings, tmp_path / "small").path)
    assert 2 * small.tokens.nbytes == tiny_late.tokens.nbytes
    some = dataset.query_ids[60:]
    one, other = (late_run(made, some, 40) for made in (tiny_late, small))
    scores = [[{p.passage_id: p.score for p in run[query]} for run in (one, other)] for query in some]
    assert max(abs(a[id_] - b[id_]) for a, b in scores for id_ in a) < 0.1


def test_features_of_whole_texts_have_no_tokens(tiny_checkpoint, tiny_dataset, tmp_path):
    whole = encode_dataset(
        Dataset.open(tiny_dataset), EncoderSettings(checkpoint=str(tiny_checkpoint)), tmp_path / "whole"
    )
    with pytest.raises(ArtifactError, match="encoder train colbert"):
        _ = whole.tokens


def test_a_checkpoint_without_a_projection_is_refused(tiny_checkpoint):
    with pytest.raises(InputError, match="late_interaction is 8"):
        DualEncoder(settings_of(tiny_checkpoint))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"similarity": "dot"}, "late_interaction compares tokens by cosine"),
        ({"sentences": "mean"}, "late_interaction has vectors of tokens, not of sentences"),
        ({"passage_vectors": 4, "token_match": "same"}, "passage_vectors are those of first tokens"),
        ({"passage_vectors": 4, "late_interaction": None}, "passage_vectors are those of first tokens"),
    ],
)
def test_settings_that_do_not_fit_are_refused(wrong, says):
    with pytest.raises(InputError, match=says):
        EncoderSettings.parse({"late_interaction": 8, **wrong})


def test_with_few_vectors_the_best_of_a_passage_is_its_score(tiny_checkpoint, tiny_dataset, tmp_path):
    """ME-BERT: trained, encoded, and ranked by the largest product of a question's vector with a passage's."""
    dataset = Dataset.open(tiny_dataset)
    made = train_dual_encoder(
        dataset, [], settings_of(tiny_checkpoint, passage_vectors=3), SETTINGS, tmp_path / "me-bert"
    )
    assert made.meta["encoder"]["passage_vectors"] == 3
    its = EncoderSettings(checkpoint=str(made.path), precision="float32")
    features = encode_dataset(dataset, its, tmp_path / "features")
    assert features.query_tokens.shape == (80, 1, 8)
    assert np.diff(features.token_starts).tolist() == [3] * 40
    query = dataset.query_ids[70]
    (ranking,) = late_run(features, [query], 40).values()
    products = restored(features.tokens) @ torch.from_numpy(np.array(features.query_tokens[70, 0])).float()
    best = products.view(40, 3).max(1).values
    assert [hit.score for hit in ranking] == pytest.approx(best.sort(descending=True).values.tolist(), abs=1e-5)
    assert features.queries[70] == pytest.approx(features.query_tokens[70, 0], abs=1e-3)


def test_the_means_are_indexed_like_any_features(tiny_late, tmp_path):
    assert build_index(tiny_late, tmp_path / "index").meta["dimension"] == 8
