import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "gnnretrieval"
FOUNDATIONS = ("errors", "settings", "progress", "resampling", "platform", "storage", "pages", "shards")
ROOMS = (
    "data",
    "encoders",
    "mining",
    "feedback",
    "losses",
    "graph",
    "nn",
    "training",
    "index",
    "maps",
    "evaluation",
    "baselines",
    "api",
    "recipes",
    "nightly",
    "integrations",
    "serve",
    "cli",
)


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    """Modules of this package that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "gnnretrieval")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "gnnretrieval":
                yield from (f"gnnretrieval.{alias.name}" for alias in node.names if alias.name != "__version__")
            elif node.module and node.module.startswith("gnnretrieval."):
                yield node.module


def test_every_module_lies_in_a_known_room():
    places = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in modules()}
    assert places - {"__init__", "__main__"} == {*FOUNDATIONS, *ROOMS}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_from_rooms_above_it(room):
    allowed = {*FOUNDATIONS, *ROOMS[: ROOMS.index(room) + 1]}
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in modules()
        if path.relative_to(PACKAGE).parts[0] == room
        for name in imported(path)
        if name.split(".")[1] not in allowed
    ]
    assert wrong == []


def test_foundations_import_only_foundations():
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {other}"
        for path in modules()
        if path.relative_to(PACKAGE).parts[0].removesuffix(".py") in FOUNDATIONS
        for other in imported(path)
        if other.split(".")[1] not in FOUNDATIONS
    ]
    assert wrong == []


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_is_short_and_says_what_it_is_for(path):
    text = path.read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(text)), "no module docstring"
    assert len(text.splitlines()) <= 450


def test_the_command_line_answers_without_loading_torch():
    code = (
        "import sys, gnnretrieval.cli; "
        "print([name for name in ('torch', 'transformers', 'sentence_transformers', 'faiss', 'torch_geometric') "
        "if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_command_line_prints_in_one_place():
    prints = re.compile(r"(?<![\w.])(print|click\.echo|click\.secho)\(")
    wrong = [path.name for path in (PACKAGE / "cli").glob("*.py") if prints.search(path.read_text(encoding="utf-8"))]
    assert wrong == ["output.py"]


def test_result_files_hold_no_texts_of_datasets():
    def keys(value: object) -> Iterator[str]:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        yield from value if isinstance(value, dict) else ()
        for one in inner:
            yield from keys(one)

    files = sorted((PACKAGE.parent / "benchmarks" / "results").glob("*.json"))
    assert files
    for file in files:
        assert {"text", "excerpt"}.isdisjoint(keys(json.loads(file.read_text(encoding="utf-8")))), file.name
