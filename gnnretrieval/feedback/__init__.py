"""Event logs of a running search: cleaned, freed of position bias, and turned into a dataset with judgements.

:func:`import_feedback` does all of it. :func:`simulate_log` writes a log with a known truth, for tests.
"""

from typing import TYPE_CHECKING

from gnnretrieval.feedback.settings import FeedbackSettings, SimulationSettings
from gnnretrieval.platform.lazy import lazy_exports

if TYPE_CHECKING:
    from gnnretrieval.feedback.database import fetch_events
    from gnnretrieval.feedback.exploration import fair_pairs
    from gnnretrieval.feedback.hard_negatives import make_feedback_examples
    from gnnretrieval.feedback.importing import ImportedFeedback, import_feedback, open_feedback
    from gnnretrieval.feedback.propensities import estimate_propensities
    from gnnretrieval.feedback.simulation import simulate_log

__all__ = [
    "FeedbackSettings",
    "ImportedFeedback",
    "SimulationSettings",
    "estimate_propensities",
    "fair_pairs",
    "fetch_events",
    "import_feedback",
    "make_feedback_examples",
    "open_feedback",
    "simulate_log",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "ImportedFeedback": "importing",
        "estimate_propensities": "propensities",
        "fair_pairs": "exploration",
        "fetch_events": "database",
        "import_feedback": "importing",
        "make_feedback_examples": "hard_negatives",
        "open_feedback": "importing",
        "simulate_log": "simulation",
    },
)
