"""Help texts with the options in sections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click


class SectionedCommand(click.Command):
    """A command with a ``--help`` in sections: the usual options first, then those of a special use.

    Args:
        sections: Names of parameters by the title of their section; all others are under "Options".
    """

    def __init__(self, *args: Any, sections: Mapping[str, Sequence[str]], **more: Any) -> None:
        super().__init__(*args, **more)
        self.context_settings.setdefault("help_option_names", ["-h", "--help"])  # as of the group, if invoked alone
        self._title_of = {name: title for title, names in sections.items() for name in names}
        self._titles = ["Options", *sections]
        unknown = self._title_of.keys() - {parameter.name for parameter in self.params}
        assert not unknown, f"{self.name} has no {sorted(unknown)}"

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, section by section."""
        records: dict[str, list[tuple[str, str]]] = {title: [] for title in self._titles}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                records[self._title_of.get(str(parameter.name), self._titles[0])].append(record)
        for title, rows in records.items():
            with formatter.section(title):
                formatter.write_dl(rows)
