"""The papers' tables beside ours, one page a paper: GNN-encoder, RocketQA, PAIR and DCSR.

    python benchmarks/papers.py

The papers' figures are in papers.toml, ours come from the JSON files in results/; no data is needed. Writes
papers/NAME.md. Each paper has a module with its sections (papers_NAME.py); papers_rows.py has what rows share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import papers_dcsr
import papers_encoders
import papers_gnn_encoder
import papers_pair
import papers_rocketqa
from papers_rows import PAPERS, ROOT, Section, beside, paper_table, section


class Page(NamedTuple):
    """What a page has beside the paper's figures: whether its claims hold, what ours are measured on, and sections."""

    holds: Callable[[], str]
    set_up: Callable[[], str]
    sections: Mapping[str, Section]


PAGES = {
    "gnn-encoder": Page(papers_gnn_encoder.holds, papers_gnn_encoder.set_up, papers_gnn_encoder.SECTIONS),
    "rocketqa": Page(papers_rocketqa.holds, papers_encoders.set_up, papers_rocketqa.SECTIONS),
    "pair": Page(papers_pair.holds, papers_encoders.set_up, papers_pair.SECTIONS),
    "dcsr": Page(papers_dcsr.holds, papers_encoders.set_up, papers_dcsr.SECTIONS),
}


def markdown(name: str) -> str:
    """A paper's page: its claim and whether it holds here, then its tables and figures in its own order."""
    paper, page = PAPERS[name], PAGES[name]
    parts = [
        f"# {paper['title']}",
        f"{paper['claim']} {page.holds()}",
        f"{page.set_up()} {paper['drawings']}",
        f"The paper: {paper['paper']}. Regenerate: `python benchmarks/papers.py`",
    ]
    for where in paper["tables"]:
        table = paper_table(name, where)
        parts.append(section(table, page.sections.get(where, beside)(table)))
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Write all pages."""
    for name in PAGES:
        path = ROOT / "papers" / f"{name}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(markdown(name), encoding="utf-8")


if __name__ == "__main__":
    main()
