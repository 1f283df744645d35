import json
import shutil

import pytest

from gnnretrieval.encoders.checkpoint import find_checkpoint
from gnnretrieval.encoders.learned_from import learned_from
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.trained import trained_settings
from gnnretrieval.errors import ArtifactError
from gnnretrieval.storage.making import make_artifact


@pytest.fixture
def artifact(tiny_checkpoint, tmp_path):
    """An encoder's artifact around the tiny checkpoint, of two sets of weights."""
    its = EncoderSettings(
        checkpoint="passage",
        similarity="dot",
        scale=0.5,
        max_tokens=20,
        query_max_tokens=12,
        passage_prompt="p: ",
        query_prompt="q: ",
    )

    def write(directory):
        for side in ("passage", "query"):
            shutil.copytree(tiny_checkpoint, directory / side)
        return {"encoder": its.model_dump(mode="json")}

    return make_artifact(tmp_path / "encoder", "encoder", inputs={}, config={}, write=write).path


def test_an_encoder_brings_its_weights_and_how_it_reads_and_compares(artifact):
    found = trained_settings(EncoderSettings(checkpoint=str(artifact)))
    assert found.checkpoint == str(artifact / "passage")
    assert found.query_checkpoint == str(artifact / "query")
    assert (found.similarity, found.scale, found.max_tokens, found.passage_prompt) == ("dot", 0.5, 20, "p: ")
    assert find_checkpoint(str(artifact)).directory == artifact / "passage"


def test_what_is_given_beside_its_name_stays(artifact):
    found = trained_settings(EncoderSettings(checkpoint=str(artifact), scale=2.0, max_tokens=9, precision="float32"))
    assert (found.scale, found.max_tokens, found.similarity, found.precision) == (2.0, 9, "dot", "float32")


def test_as_a_query_checkpoint_its_query_encoder_is_taken(artifact, tiny_checkpoint):
    found = trained_settings(EncoderSettings(checkpoint=str(tiny_checkpoint), query_checkpoint=str(artifact)))
    assert found.checkpoint == str(tiny_checkpoint)
    assert found.query_checkpoint == str(artifact / "query")
    assert (found.query_prompt, found.query_max_tokens) == ("q: ", 12)
    given = EncoderSettings(checkpoint=str(artifact), query_checkpoint=str(artifact), query_max_tokens=7)
    assert trained_settings(given).query_max_tokens == 7


def test_an_encoder_learned_from_the_queries_of_both_sides(artifact, tiny_checkpoint, tmp_path):
    (artifact / "learned-from.txt").write_text("q1\n")
    (tmp_path / "learned-from.txt").write_text("q2\n")
    assert learned_from(EncoderSettings(checkpoint=str(tiny_checkpoint), query_checkpoint=str(artifact))) == {"q1"}
    both = EncoderSettings(checkpoint=str(tmp_path), query_checkpoint=str(artifact))
    assert learned_from(both) == {"q1", "q2"}


def test_any_other_checkpoint_is_left_as_it_is(tiny_checkpoint):
    settings = EncoderSettings(checkpoint=str(tiny_checkpoint))
    assert trained_settings(settings) is settings


def test_another_kind_of_artifact_is_refused(tiny_features):
    with pytest.raises(ArtifactError, match="holds features, not an encoder"):
        trained_settings(EncoderSettings(checkpoint=str(tiny_features.path)))
    with pytest.raises(ArtifactError, match="holds features, not an encoder"):
        find_checkpoint(str(tiny_features.path))


def test_one_of_a_later_format_is_refused(artifact):
    meta = json.loads((artifact / "meta.json").read_text())
    (artifact / "meta.json").write_text(json.dumps({**meta, "format_version": 99}))
    with pytest.raises(ArtifactError, match="99"):
        find_checkpoint(str(artifact))
