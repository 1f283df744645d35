import pytest
from pydantic import Field, ValidationError

from gnnretrieval.errors import InputError
from gnnretrieval.settings import Settings


class Inner(Settings):
    heads: int = Field(1, ge=1)
    dropout: float = 0.0


class Outer(Settings):
    name: str
    epochs: int = 3
    encoder: Inner = Inner()


def test_values_are_read_with_defaults_for_the_others():
    settings = Outer.parse({"name": "a", "encoder": {"heads": 2}})
    assert settings == Outer(name="a", epochs=3, encoder=Inner(heads=2, dropout=0.0))


def test_settings_cannot_be_changed():
    settings = Outer(name="a")
    with pytest.raises(ValidationError):
        settings.epochs = 4
    assert settings.epochs == 3


def test_an_unknown_key_suggests_the_nearest_and_lists_the_known_ones():
    with pytest.raises(InputError) as caught:
        Outer.parse({"name": "a", "epocs": 4})
    assert str(caught.value) == "unknown key 'epocs'. Did you mean 'epochs'? Known here: name, epochs, encoder."


def test_an_unknown_key_of_a_group_is_compared_with_the_groups_keys():
    with pytest.raises(
        InputError, match=r"unknown key 'encoder\.head'\. Did you mean 'heads'\? Known here: heads, dropout"
    ):
        Outer.parse({"name": "a", "encoder": {"head": 4}})


def test_so_is_an_unknown_key_of_a_group_that_may_be_left_out():
    class Outermost(Settings):
        outer: Outer | None = None

    with pytest.raises(InputError, match=r"unknown key 'outer\.encoder\.head'\. .*Known here: heads, dropout"):
        Outermost.parse({"outer": {"name": "a", "encoder": {"head": 4}}})


def test_a_key_that_is_like_no_other_gets_no_suggestion():
    with pytest.raises(InputError) as caught:
        Outer.parse({"name": "a", "zzz": 4})
    assert "Did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "a", "epochs": "many"}, r"epochs: .*integer.* \(found 'many'\)"),
        ({"name": "a", "encoder": {"heads": 0}}, r"encoder\.heads: .*greater than or equal to 1 \(found 0\)"),
        ({"name": "a", "encoder": 7}, r"encoder: .* \(found 7\)"),
        ({"epochs": 1}, r"name is missing: add it\."),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_what_was_found(values, message):
    with pytest.raises(InputError, match=message) as caught:
        Outer.parse(values)
    assert "\n" not in str(caught.value)


def test_the_file_and_the_line_of_the_key_are_named():
    lines = {"name": 1, "encoder": 4, "encoder.heads": 6}
    with pytest.raises(InputError, match=r"^my\.toml:6: encoder\.heads:") as caught:
        Outer.parse({"name": "a", "encoder": {"heads": 0}}, "my.toml", lines)
    assert (str(caught.value.path), caught.value.line) == ("my.toml", 6)
    with pytest.raises(InputError, match=r"^my\.toml:4: unknown key 'encoder\.size'"):
        Outer.parse({"name": "a", "encoder": {"size": 0}}, "my.toml", lines)
    with pytest.raises(InputError, match=r"^my\.toml: name"):
        Outer.parse({}, "my.toml", {})


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_is_refused(value):
    with pytest.raises(InputError, match=r"encoder\.dropout"):
        Outer.parse({"name": "a", "encoder": {"dropout": value}})
