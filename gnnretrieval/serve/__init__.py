"""The HTTP search API, and the explorer: a page that shows what the graph moved, and why."""

from typing import TYPE_CHECKING

from gnnretrieval.platform.lazy import lazy_exports

if TYPE_CHECKING:
    from gnnretrieval.serve.app import create_app
    from gnnretrieval.serve.running import serve
    from gnnretrieval.serve.settings import ServeSettings
    from gnnretrieval.serve.view_page import write_view

__all__ = ["ServeSettings", "create_app", "serve", "write_view"]

__getattr__ = lazy_exports(
    __name__,
    {"ServeSettings": "settings", "create_app": "app", "serve": "running", "write_view": "view_page"},
)
