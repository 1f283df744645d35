import pytest
from click.testing import CliRunner

from gnnretrieval.cli import cli
from gnnretrieval.encoders.features import encode_dataset
from gnnretrieval.errors import InputError
from gnnretrieval.mining import open_examples


def run(*words: object):
    return CliRunner().invoke(cli, [str(word) for word in ("mine", *words)], catch_exceptions=True)


def test_negatives_by_bm25_then_denoised_where_the_dataset_lay(dataset, told, tiny_cross_encoder, tmp_path):
    mined = run("negatives", dataset.path, "--out", tmp_path / "negatives")
    assert mined.exit_code == 0, mined.output
    assert "candidates: 5, of which 3 are negatives" in mined.output
    assert f"Next: gnnretrieval mine denoise {tmp_path / 'negatives'} --cross-encoder NAME" in mined.output
    assert "  dropped: 1 with the text of a relevant passage" in mined.output
    told({("red apple", "red apple pie recipe"): 0.95})
    words = ("--cross-encoder", tiny_cross_encoder, "--negative-threshold", "0.2", "--out", tmp_path / "denoised")
    denoised = run("denoise", tmp_path / "negatives", *words)
    assert denoised.exit_code == 0, denoised.output
    assert "positives: 1 by label, 1 by cross-encoder" in denoised.output
    made = open_examples(tmp_path / "denoised")
    assert (made.config["negative_threshold"], made.config["positive_threshold"]) == (0.2, 0.9)


def test_negatives_by_features_and_pseudo_labels(dataset, told, tiny_settings, tiny_cross_encoder, tmp_path):
    features = encode_dataset(dataset, tiny_settings, tmp_path / "features").path
    mined = run("negatives", dataset.path, "--features", features, "--top-k", "4", "--out", tmp_path / "negatives")
    assert mined.exit_code == 0, mined.output
    assert open_examples(tmp_path / "negatives").meta["inputs"].keys() == {"dataset", "features"}
    told({("apple pie", "red apple pie recipe"): 0.95})
    words = ("--cross-encoder", tiny_cross_encoder, "--out", tmp_path / "labels")
    labelled = run("pseudo-label", dataset.path, features, *words)
    assert labelled.exit_code == 0, labelled.output
    assert "  left out: 1 with the text of a judged query" in labelled.output


def test_thresholds_that_do_not_fit_and_a_judge_that_is_missing_are_refused(dataset, tmp_path):
    run("negatives", dataset.path, "--out", tmp_path / "negatives")
    words = ("--cross-encoder", "any", "--positive-threshold", "0.1")
    refused = run("denoise", tmp_path / "negatives", *words, "--out", tmp_path / "denoised")
    assert isinstance(refused.exception, InputError)
    assert "must be below" in str(refused.exception)
    refused = run("denoise", tmp_path / "negatives", "--out", tmp_path / "denoised")
    assert refused.exit_code == 2
    assert "Missing option '--cross-encoder'" in refused.output
    assert not (tmp_path / "denoised").exists()


@pytest.mark.parametrize("verb", ["negatives", "denoise", "pseudo-label"])
def test_help_has_an_example_and_a_meaning_for_every_setting(verb):
    shown = run(verb, "--help").output
    assert f"Example: gnnretrieval mine {verb}" in shown
    assert "--seed" in shown or verb == "pseudo-label"
