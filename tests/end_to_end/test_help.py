"""The sections of ``--help``."""

import click
import pytest
from click.testing import CliRunner

from gnnretrieval.cli import cli
from gnnretrieval.cli.sections import SectionedCommand


def sectioned(command, words=()):
    """Every command with sections, and its words."""
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from sectioned(inner, (*words, name))
    elif isinstance(command, SectionedCommand):
        yield words


@pytest.mark.parametrize("words", sectioned(cli), ids=" ".join)
def test_every_option_is_shown_once_and_the_usual_ones_first(words):
    said = CliRunner().invoke(cli, [*words, "--help"], terminal_width=200).output
    command = cli
    for word in words:
        command = command.commands[word]
    options = [parameter.opts[0] for parameter in command.params if isinstance(parameter, click.Option)]
    shown = [line.split()[0].rstrip(",") for line in said.split("\nOptions:")[1].splitlines() if line.startswith("  -")]
    assert sorted(shown) == sorted([*options, "-h"])
    assert shown.index("-h") <= 15  # the last of the usual options


@pytest.mark.parametrize("words", sectioned(cli), ids=" ".join)
def test_an_argument_is_no_option(words):
    said = CliRunner().invoke(cli, [*words, "--help"], terminal_width=200).output
    assert said.split("\nOptions:\n")[1].startswith("  -")


def all_options(command):
    """Every option of a command and of those below it."""
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        yield from all_options(inner)
    yield from (one for one in command.params if isinstance(one, click.Option))


def test_an_option_that_may_be_repeated_says_so_in_one_way():
    several = {(one.opts[0], one.help) for one in all_options(cli) if one.multiple and one.opts[0] != "--dev-run"}
    assert len(several) > 5
    assert [option for option, help in several if not help.endswith("; may be repeated.")] == []


def test_index_build_is_made_in_parts():
    said = CliRunner().invoke(cli, ["index", "build", "--help"], terminal_width=200).output
    assert "Most parts at the same time." in said
    assert "shards" not in said


def test_a_command_that_was_invoked_alone_has_both_help_options():
    alone = SectionedCommand("one", sections={})
    assert CliRunner().invoke(alone, ["-h"]).exit_code == 0
    assert "-h, --help" in CliRunner().invoke(alone, ["--help"]).output


def test_sections_that_name_no_option_are_a_fault():
    with pytest.raises(AssertionError, match="none"):
        SectionedCommand("one", sections={"Two": ["none"]})
