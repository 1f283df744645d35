import math
import shutil

import numpy as np
import pytest
import torch
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from transformers import (
    BertForSequenceClassification,
    BertForTokenClassification,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    LlamaConfig,
    LlamaForSequenceClassification,
    RobertaConfig,
    RobertaForSequenceClassification,
)

from gnnretrieval.encoders.cross_encoder import CrossEncoder
from gnnretrieval.encoders.settings import CrossEncoderSettings
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.training.encoder.calibration import (
    IDENTITY,
    Calibration,
    apply_calibration,
    expected_calibration_error,
    fit_calibration,
)

SMALL = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, "vocab_size": 20}


def overconfident(seed: int, pairs: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    """Logits three times too far from where they should be, and one too high; labels."""
    rng = np.random.default_rng(seed)
    honest = rng.normal(-1, 1.5, pairs)
    return 3 * honest + 1, rng.random(pairs) < expit(honest)


def test_an_overconfident_scorer_is_called_back():
    calibration = fit_calibration(*overconfident(0))
    assert calibration.slope == pytest.approx(1 / 3, rel=0.1)
    assert calibration.intercept == pytest.approx(-1 / 3, abs=0.1)
    logits, labels = overconfident(1)
    after = expit(calibration.slope * logits + calibration.intercept)
    assert expected_calibration_error(expit(logits), labels) > 0.1
    assert expected_calibration_error(after, labels) < 0.03
    assert np.array_equal(np.argsort(after, kind="stable"), np.argsort(expit(logits), kind="stable"))


def test_the_fit_is_the_logistic_regression_of_platt_s_targets():
    logits, labels = overconfident(0, pairs=200)
    positives = labels.sum()
    high, low = (positives + 1) / (positives + 2), 1 / (len(labels) - positives + 2)
    targets = np.where(labels, high, low)
    weights = np.concatenate([targets, 1 - targets])
    regression = LogisticRegression(C=1e12, tol=1e-10, max_iter=1000)
    regression.fit(np.tile(logits, 2)[:, None], np.repeat([True, False], len(logits)), weights)
    calibration = fit_calibration(logits, labels)
    assert calibration.slope == pytest.approx(regression.coef_[0, 0], rel=1e-4)
    assert calibration.intercept == pytest.approx(regression.intercept_[0], rel=1e-4)


def test_two_separated_pairs_by_hand():
    # Targets 2/3 and 1/3, which a line through (1, log 2) and (-1, -log 2) gives exactly.
    calibration = fit_calibration([1.0, -1.0], [True, False])
    assert calibration.slope == pytest.approx(math.log(2), rel=1e-5)
    assert calibration.intercept == pytest.approx(0, abs=1e-6)
    assert calibration.fitted


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_separable_logits_of_any_size_stay_finite(size):
    calibration = fit_calibration(size * np.array([1.0, 2.0, 3.0, 4.0]), [False, False, True, True])
    assert calibration.fitted
    assert 0 < calibration.slope * size < 100
    assert math.isfinite(calibration.intercept)


@pytest.mark.parametrize(
    ("logits", "labels"),
    [
        ([1.0, 2.0], [True, True]),
        ([1.0, 2.0], [False, False]),
        ([], []),
        ([0.5, 0.5], [True, False]),
        ([2.0, 1.0, 0.0, -1.0], [False, False, True, True]),
    ],
    ids=["no negative", "no positive", "nothing", "one logit", "the wrong way round"],
)
def test_what_cannot_be_fitted_is_the_identity_and_says_so(logits, labels):
    assert fit_calibration(logits, labels) == IDENTITY == Calibration(1.0, 0.0, fitted=False)


def test_a_broken_scorer_is_refused():
    with pytest.raises(GnnRetrievalError, match="not a finite number"):
        fit_calibration([1.0, float("nan")], [True, False])
    with pytest.raises(GnnRetrievalError, match=r"one label for each logit.*\(2,\) and \(3,\)"):
        fit_calibration([1.0, 2.0], [True, False, True])


def test_the_calibration_error_by_hand():
    # [0, 0.5): mean 0.2, share 1/2; [0.5, 1]: mean 0.9, share 2/2.
    probabilities, labels = [0.1, 0.3, 0.8, 1.0], [False, True, True, True]
    assert expected_calibration_error(probabilities, labels, bins=2) == pytest.approx((0.3 * 2 + 0.1 * 2) / 4)
    assert expected_calibration_error([0.0, 1.0], [False, True]) == 0
    assert expected_calibration_error([0.0, 1.0], [True, False]) == 1


@pytest.mark.parametrize(
    ("probabilities", "bins", "said"), [([0.2, 1.2], 10, "one is 1.2"), ([], 10, "there are none"), ([0.5], 0, "bins")]
)
def test_a_calibration_error_of_no_probabilities_is_refused(probabilities, bins, said):
    with pytest.raises(GnnRetrievalError, match=said):
        expected_calibration_error(probabilities, [True] * len(probabilities), bins)


@pytest.mark.parametrize("labels", [1, 2])
def test_a_calibrated_checkpoint_gives_the_calibrated_probability(labels, tiny_cross_encoder, tmp_path):
    path = tmp_path / "model"
    torch.manual_seed(3)
    model = BertForSequenceClassification.from_pretrained(
        tiny_cross_encoder, num_labels=labels, ignore_mismatched_sizes=True
    )
    shutil.copytree(tiny_cross_encoder, path)  # its tokenizer
    with torch.no_grad():
        model.classifier.bias.normal_()
    calibration = Calibration(0.3, -1.5)
    probabilities = []
    for _ in range(2):
        model.save_pretrained(path)
        encoder = CrossEncoder(CrossEncoderSettings(checkpoint=str(path), precision="float32", max_tokens=64))
        pairs = np.array([[row, column] for row in range(2) for column in range(2)])
        probabilities.append(
            encoder.encode_pairs(["what is red", "who"], ["red is a colour", "b"], pairs).probabilities
        )
        apply_calibration(model, calibration)
    before, after = probabilities
    np.testing.assert_allclose(after, expit(0.3 * np.log(before / (1 - before)) - 1.5), rtol=1e-4)


def test_the_last_layer_of_other_families_is_found():
    calibration = Calibration(2.0, 1.0)
    tokens = torch.tensor([[1, 5, 6, 2]])
    roberta = RobertaForSequenceClassification(RobertaConfig(**SMALL, num_labels=2)).eval()
    distil = DistilBertForSequenceClassification(
        DistilBertConfig(vocab_size=20, dim=8, n_layers=1, n_heads=2, hidden_dim=8, num_labels=1)
    ).eval()
    for model in (roberta, distil):
        with torch.no_grad():
            before = model(tokens).logits[0]
            apply_calibration(model, calibration)
            after = model(tokens).logits[0]
        margins = [float(logits[-1] - (logits[0] if len(logits) == 2 else 0)) for logits in (before, after)]
        assert margins[1] == pytest.approx(2 * margins[0] + 1, abs=1e-5)
        if len(after) == 2:
            assert float(after[0]) == pytest.approx(2 * float(before[0]), abs=1e-5)


def test_a_head_that_cannot_be_calibrated_is_refused_by_its_type(tiny_cross_encoder):
    with pytest.raises(GnnRetrievalError, match="BertModel has no Linear"):
        apply_calibration(BertForSequenceClassification.from_pretrained(tiny_cross_encoder).bert, IDENTITY)
    three = BertForTokenClassification.from_pretrained(tiny_cross_encoder, num_labels=3, ignore_mismatched_sizes=True)
    with pytest.raises(GnnRetrievalError, match="BertForTokenClassification's last layer has 3 labels"):
        apply_calibration(three, IDENTITY)
    llama = LlamaForSequenceClassification(LlamaConfig(**SMALL, num_labels=1))
    with pytest.raises(GnnRetrievalError, match="LlamaForSequenceClassification's last layer has no bias"):
        apply_calibration(llama, IDENTITY)
