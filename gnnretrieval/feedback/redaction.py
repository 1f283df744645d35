"""Masks for personal data in questions, by pattern: e-mail addresses, phone numbers, account and card numbers."""

from __future__ import annotations

import re
import unicodedata

_EMAIL = re.compile(r"[\w.+%'&*/=?^{|}~-]+@[\w-]+(?:\.[\w-]+)+")
_IBAN = re.compile(r"(?<!\w)[A-Za-z]{2}\d{2}(?:[ -]?[A-Za-z0-9]{4}){2,7}(?:[ -]?[A-Za-z0-9]{1,3})?(?!\w)")
_CARD = re.compile(r"(?<!\w)\d(?:[ -]?\d){12,18}(?!\w)")
_PHONE = re.compile(
    r"""(?<![\w.])(?:
    (?:\+|00)\s?\d(?:[\s()./-]{0,3}\d){6,14}       # with the country's code
    | \(?0\d(?:[\s()./-]{0,3}\d){6,13}             # with a leading 0
    | \(?\d{3}\)?[\s.-]\d{3}[\s.-]\d{4}            # 555-123-4567
    | \d{10,12}                                    # a run of digits
    )(?!\w)""",
    re.VERBOSE,
)
_DATE = re.compile(r"\d{1,2}[./-]\d{1,2}[./-]\d{2,4}")
_DIGITS = 8  # least number of digits in an account number; fewer are words with a number before them


def redacted(text: str) -> str:
    """``text`` with personal data replaced by ``[email]``, ``[account]``, ``[card]`` and ``[phone]``.

    The text is brought into Unicode's form NFKC first, so that wide digits and signs match too. Patterns miss
    names and addresses, and also mask other numbers of 10 digits or more.
    """
    masked = _masked_once(unicodedata.normalize("NFKC", text))
    # A number that follows another one without a space is seen when that one is gone.
    while masked != text:
        text, masked = masked, _masked_once(masked)
    return masked


def _masked_once(text: str) -> str:
    text = _EMAIL.sub("[email]", text)
    text = _IBAN.sub(lambda match: "[account]" if _has_digits(match[0]) else match[0], text)
    text = _CARD.sub("[card]", text)
    return _PHONE.sub(lambda match: match[0] if _DATE.fullmatch(match[0]) else "[phone]", text)


def _has_digits(text: str) -> bool:
    return sum(sign.isdigit() for sign in text[4:]) >= _DIGITS
