"""Rules of WCAG A and AA that axe can check, for tests of pages."""

import pytest

axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe here: pip install '.[browser]'")

RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"], "resultTypes": ["violations"]}


def require_no_breach(page):
    found = axe.Axe().run(page, options=RULES)
    if found.violations_count:
        pytest.fail(found.generate_report(), pytrace=False)
