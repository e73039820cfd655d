"""Conditions on the rows of a table: a small grammar of comparisons, read once, held by the block.

::

    condition  = comparison | "not" condition | condition ("and" | "or") condition | "(" condition ")"
    comparison = sum (("<" | "<=" | ">" | ">=" | "=" | "==" | "!=") sum)+ | sum ["not"] "in" "(" sum, ... ")"
    sum        = numbers, columns and texts with + - * / and parentheses

``or`` binds loosest, then ``and``, ``not``, comparisons, ``+ -``, ``* /``. Nothing is ever run as code.

* A number is SI as it stands; with a unit (``2 ms``, ``28 GB/s``) or ``%`` it is checked against what it
  meets. ``K``, ``M``, ``G`` are powers of 1024 and meet only columns without a unit: ``m >= 4K``.
* A name is a column. A name that is none is text where it meets a column of words: ``schedule = mc2``.
  Text may stand in quotes, and must where it has blanks or starts with a digit.
* ``a-b`` is one word (``mixtral-8x7b``) unless ``a`` is a column.
* A comparison with not-a-number is false, ``!=`` and ``not in`` too. Division by 0 gives infinity, or
  not-a-number for 0 / 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from mc2perf.conditions import Condition
from mc2perf.problems import InputError
from mc2perf.readers.conditions.dimensions import powers_of
from mc2perf.readers.conditions.grammar import Climber
from mc2perf.readers.conditions.meaning import Meaning
from mc2perf.table import Column

LONGEST = 10_000
"""Longest text of a condition [characters]."""


def read_condition(text: str, columns: Sequence[Column]) -> Condition:
    """Read a condition on the columns of a table.

    Parameters
    ----------
    text : str
        Such as ``"comm_ratio < 20% and schedule in (mc2, coc)"``; the grammar stands at the top.
    columns : sequence of Column
        What may be named; a column without unit holds words.

    Raises
    ------
    InputError
        What is wrong and where; unknown names, mixed units and mixed kinds all at once.

    Examples
    --------
    >>> import numpy as np
    >>> from mc2perf.table import Words
    >>> columns = [Column("total_time", "s", "time"), Column("schedule", "", "schedule")]
    >>> condition = read_condition("total_time<2 ms and schedule == mc2", columns)
    >>> condition.text
    "total_time < 2 ms and schedule = 'mc2'"
    >>> words = Words(np.array([0, 0, 1]), ("mc2", "serial"))
    >>> condition.holds({"total_time": np.array([0.001, 0.003, 0.001]), "schedule": words}).tolist()
    [True, False, False]
    >>> read_condition("total_time <", columns)
    Traceback (most recent call last):
    mc2perf.problems.InputError: where: 'total_time <' ends after '<'; write a number or a column
    """
    if len(text) > LONGEST:
        raise InputError([f"where: has {len(text)} characters; write at most {LONGEST}"])
    if not text.strip():
        raise InputError(["where: is empty; write for example comm_ratio < 0.2"])
    meaning = Meaning({column.name: powers_of(column.unit) if column.unit else None for column in columns})
    reader = Climber(text.strip(), meaning)
    root = reader.whole()
    used = (token.text for token in reader.tokens if token.kind == "name")
    return Condition(root.text, tuple(dict.fromkeys(name for name in used if name in meaning.columns)), root)
