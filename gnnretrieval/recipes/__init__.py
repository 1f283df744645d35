"""Recipes: one TOML file has the settings of every stage, and running it makes the artifacts in order."""

from typing import TYPE_CHECKING

from gnnretrieval.platform.lazy import lazy_exports

if TYPE_CHECKING:
    from gnnretrieval.recipes.recipe import Recipe, read_recipe
    from gnnretrieval.recipes.report import write_report
    from gnnretrieval.recipes.run import RecipeRun, run_recipe

__all__ = ["Recipe", "RecipeRun", "read_recipe", "run_recipe", "write_report"]

__getattr__ = lazy_exports(
    __name__,
    {
        "Recipe": "recipe",
        "RecipeRun": "run",
        "read_recipe": "recipe",
        "run_recipe": "run",
        "write_report": "report",
    },
)
