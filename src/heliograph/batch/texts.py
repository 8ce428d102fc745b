"""Numbers and times as texts, compiled by numba: for `labelling`, whose rules hold here too. What they have to give is
`labels.time_text` and `labels.time_of`."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,call-arg,attr-defined"
from __future__ import annotations

import numpy as np

from heliograph.batch.kernels import _part, nb

TEXT_BYTES = 32  # the longest of these texts has 24
DAY_MS = 86_400_000
YEAR_10000_MS = 253_402_300_800_000


@_part
def _put_number(text, at, value, digits):
    """`value` with this many digits, zeros in front."""
    for n in range(digits):
        text[at + digits - 1 - n] = np.uint8(48 + value % 10)
        value //= 10
    return at + digits


@nb.njit
def _number_text(text, value):
    """A whole number; how long it is."""
    at = 0
    rest = np.uint64(value)
    if value < 0:
        text[0] = np.uint8(45)
        at = 1
        rest = np.uint64(0) - rest
    digits = 1
    shorter = rest // np.uint64(10)
    while shorter > np.uint64(0):
        digits += 1
        shorter //= np.uint64(10)
    for n in range(digits):
        text[at + digits - 1 - n] = np.uint8(np.uint64(48) + rest % np.uint64(10))
        rest //= np.uint64(10)
    return at + digits


@nb.njit
def _time_text(text, ms):
    """`labels.time_text`; how long it is."""
    if ms < 0 or ms >= YEAR_10000_MS:
        return _number_text(text, ms)
    # Days since 0000-03-01, in eras of 400 years: a leap day is then the last day of a year, of a century, of an era.
    days = ms // DAY_MS + 719_468
    era = days // 146_097
    day = days - era * 146_097
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5
    month = month + 3 if month < 10 else month - 9
    year += era * 400 + (1 if month <= 2 else 0)
    rest = ms % DAY_MS
    at = _put_number(text, 0, year, 4)
    text[at] = np.uint8(45)
    at = _put_number(text, at + 1, month, 2)
    text[at] = np.uint8(45)
    at = _put_number(text, at + 1, day + 1, 2)
    text[at] = np.uint8(84)
    at = _put_number(text, at + 1, rest // 3_600_000, 2)
    text[at] = np.uint8(58)
    at = _put_number(text, at + 1, rest // 60_000 % 60, 2)
    text[at] = np.uint8(58)
    at = _put_number(text, at + 1, rest // 1000 % 60, 2)
    text[at] = np.uint8(46)
    at = _put_number(text, at + 1, rest % 1000, 3)
    text[at] = np.uint8(90)
    return at + 1


@nb.njit
def _number(b, at, size):
    """(value, whether there is one) of a whole number as it is written: no sign but a minus, no zeros in front."""
    end = at + size
    negative = size > 0 and b[at] == 45
    if negative:
        at += 1
    if at >= end or end - at > 19 or (b[at] == 48 and (end - at > 1 or negative)):
        return np.int64(0), False
    value = np.uint64(0)
    while at < end:
        digit = b[at] - np.uint8(48)
        if digit > 9:
            return np.int64(0), False
        value = value * np.uint64(10) + np.uint64(digit)  # 19 digits are less than 2^64
        at += 1
    most = np.uint64(1) << np.uint64(63)
    if value > most or (value == most and not negative):
        return np.int64(0), False
    return (np.int64(np.uint64(0) - value) if negative else np.int64(value)), True


@nb.njit
def _digits(b, at, digits):
    """The value of so many digits; -1: they are none."""
    value = np.int64(0)
    for n in range(digits):
        digit = b[at + n] - np.uint8(48)
        if digit > 9:
            return np.int64(-1)
        value = value * 10 + np.int64(digit)
    return value


@nb.njit
def _time(b, at, size):
    """`labels.time_of`: (ms, whether there is one)."""
    number, found = _number(b, at, size)
    if found:
        return number, True
    none = (np.int64(0), False)
    if size < 20 or size > 35:
        return none
    if b[at + 4] != 45 or b[at + 7] != 45 or b[at + 10] != 84 or b[at + 13] != 58 or b[at + 16] != 58:
        return none
    year, month, day = _digits(b, at, 4), _digits(b, at + 5, 2), _digits(b, at + 8, 2)
    hour, minute, second = _digits(b, at + 11, 2), _digits(b, at + 14, 2), _digits(b, at + 17, 2)
    if year < 1 or month < 1 or month > 12 or day < 1:
        return none
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return none
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    length = 31
    if month == 2:
        length = 29 if leap else 28
    elif month == 4 or month == 6 or month == 9 or month == 11:
        length = 30
    if day > length:
        return none
    end = at + size
    at += 19
    fraction = np.int64(0)
    if b[at] == 46:
        at += 1
        seen = 0
        while at < end and b[at] - np.uint8(48) <= 9:
            if seen < 3:
                fraction = fraction * 10 + np.int64(b[at] - np.uint8(48))
            seen += 1
            at += 1
        if seen == 0 or seen > 9:
            return none
        while seen < 3:
            fraction *= 10
            seen += 1
    shift = np.int64(0)
    if end - at == 1 and b[at] == 90:
        pass
    elif end - at == 6 and (b[at] == 43 or b[at] == 45) and b[at + 3] == 58:
        hours, minutes = _digits(b, at + 1, 2), _digits(b, at + 4, 2)
        if hours < 0 or hours > 23 or minutes < 0 or minutes > 59:
            return none
        shift = (hours * 60 + minutes) * 60_000
        if b[at] == 45:
            shift = -shift
    else:
        return none
    early = 1 if month <= 2 else 0
    year -= early
    era = year // 400
    in_era = year - era * 400
    in_year = (153 * (month + (9 if early else -3)) + 2) // 5 + day - 1
    days = era * 146_097 + in_era * 365 + in_era // 4 - in_era // 100 + in_year - 719_468
    return days * DAY_MS + hour * 3_600_000 + minute * 60_000 + second * 1000 + fraction - shift, True
