"""The nightly update of a running search: from its clicks to a better index, promoted only by evidence.

:func:`update_search` is one night. :func:`roll_back` promotes an earlier version, which stays until
:func:`end_rollback`. :func:`forget_events` takes events out of the store, and so out of everything that is made next.
"""

from typing import TYPE_CHECKING

from gnnretrieval.platform.lazy import lazy_exports

if TYPE_CHECKING:
    from gnnretrieval.nightly.report import UpdateReport
    from gnnretrieval.nightly.returning import end_rollback, forget_events, roll_back
    from gnnretrieval.nightly.updating import update_search
    from gnnretrieval.nightly.versions import Versions

__all__ = ["UpdateReport", "Versions", "end_rollback", "forget_events", "roll_back", "update_search"]

__getattr__ = lazy_exports(
    __name__,
    {
        "UpdateReport": "report",
        "Versions": "versions",
        "end_rollback": "returning",
        "forget_events": "returning",
        "roll_back": "returning",
        "update_search": "updating",
    },
)
