"""The caller's condition: one SQL expression, whose meaning does not change when AND joins it with others.

Lance parses a condition as the end of a statement and ignores the text after the expression. So `n < 5) OR (n < 5`,
put in brackets and joined with another condition, would be an OR of the two; and a chain of some hundred operators
overflows the stack of the process. The checks are simpler than SQL: quotes and brackets must pair, comments and second
statements are refused, and nesting is limited. Lance checks the meaning of the expression.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from compatstore.errors import InvalidInput

# Lance ends the process at about 600 operators in a row, and at more than 10,000 ANDs and ORs, which it nests less.
MOST_OPERATORS = 200
MOST_CLAUSES = 5_000

_CLOSED_BY = {"(": ")", "[": "]"}
_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\r\n\xa0]+)
  | (?P<comment>--|/\*|\*/)
  | (?P<quoted>(?:\b[xX])?'(?:[^']|'')*' | "(?:[^"]|"")*" | `(?:[^`]|``)*`)
  | (?P<word>\w+)
  | (?P<bracket>[()\[\]])
  | (?P<operator>[-+*/%<>=!|]+|::)
  | (?P<mark>[,.:])
    """,
    re.VERBOSE,
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_NESTING = frozenset({"not", "is", "between", "like", "ilike", "in", "and", "or"})


def joined(where: str | Sequence[str] | None, operation: str) -> str | None:
    """One condition out of all that must hold.

    Args:
        where: A condition in SQL, several that must all hold, or None.
        operation: The caller's operation, for messages.

    Raises:
        InvalidInput: One of them is not one expression.
    """
    if where is None:
        return None
    conditions = [where] if isinstance(where, str) else list(where)
    for condition in conditions:
        require_expression(condition, operation)
    if len(conditions) < 2:
        return conditions[0] if conditions else None
    return " AND ".join(f"({condition})" for condition in conditions)


def require_expression(condition: str, operation: str) -> None:
    """Refuse text that is not one SQL expression, or is more than that.

    Raises:
        InvalidInput: It is empty; a quote or bracket has no partner; it holds a comment, a second statement or a
            character that no condition has; or it is nested too deeply.
    """
    found = _fault(condition)
    if found:
        raise InvalidInput(
            f"{operation} where {condition[:200]!r}",
            expected="a condition in SQL, one expression, on the gallery's columns",
            found=found,
            fix="Values that come from outside belong in quotes, with each ' in them doubled.",
        )
    left, right = _compared_texts(condition)
    if right:
        raise InvalidInput(
            f"{operation} where {condition[:200]!r}",
            expected="a column that is compared with a value",
            found=f"{left} {right}: quotes of both kinds make a text in Lance, and two texts are compared",
            fix=f"Write the column without quotes, or in backticks: `{left[1:-1][:80]}` {right[:80]}",
        )


def _fault(condition: str) -> str:
    """The reason why a text is not one expression; "" if it is one."""
    if not condition.strip():
        return "an empty one"
    surrogate = _SURROGATE.search(condition)
    if surrogate:
        return f"half a character, {surrogate[0]!r}, at character {surrogate.start() + 1}"
    open_brackets: list[str] = []
    operators = [0]  # in a row, for each bracket that is open
    clauses = 0
    between = [0]
    for kind, text, position in _tokens(condition):
        if kind in ("comment", ""):
            what = "a comment" if kind == "comment" else _stray(text)
            return f"{what} at character {position + 1}"
        if kind == "bracket" and text in _CLOSED_BY:
            open_brackets.append(text)
            operators.append(0)
            between.append(0)
        elif kind == "bracket":
            if not open_brackets or _CLOSED_BY[open_brackets.pop()] != text:
                return f"{text!r} at character {position + 1}, which closes nothing"
            operators.pop()
            between.pop()
        elif text == ",":
            operators[-1] = 0
        elif kind == "operator" or (kind == "word" and text.lower() in _NESTING):
            word = text.lower()
            between[-1] += word == "between"
            if word in ("and", "or") and not between[-1]:
                clauses += 1
                operators[-1] = 0
            else:
                between[-1] -= word == "and"
                operators[-1] += 1
        if operators[-1] > MOST_OPERATORS or clauses > MOST_CLAUSES:
            return f"more than {MOST_OPERATORS} operators in a row, or {MOST_CLAUSES} clauses; write IN (...) instead"
    return f"{open_brackets[-1]!r} that is never closed" if open_brackets else ""


_COMPARES = frozenset({"=", "==", "<", ">", "<=", ">=", "!=", "<>", "like", "ilike", "in", "is", "not", "between"})


def _compared_texts(condition: str) -> tuple[str, str]:
    """A text in quotes that is compared with no column, and the text after it; "" and "" if there is none."""
    tokens = [(kind, text) for kind, text, _ in _tokens(condition)]
    for place, (kind, text) in enumerate(tokens):
        behind = [other for _, other in tokens[place + 1 : place + 4]]
        if kind != "quoted" or text[0] not in "'\"" or not behind or behind[0].lower() not in _COMPARES:
            continue
        if place and tokens[place - 1][1].lower() in _COMPARES:
            continue  # it is the right side of another comparison
        operand = next((other for other in behind[1:] if other != "(" and other.lower() not in _COMPARES), "")
        if operand[:1] in ("'", '"') or operand[:1].isdigit() or operand.lower() == "null":
            return text, " ".join(behind[: behind.index(operand) + 1])
    return "", ""


def _tokens(condition: str) -> Iterator[tuple[str, str, int]]:
    """Kind, text and position of each part of a condition; kind "" of the first character that begins none."""
    position = 0
    while position < len(condition):
        match = _TOKEN.match(condition, position)
        if match is None:
            yield "", condition[position], position
            return
        kind = str(match.lastgroup)
        if kind == "word" and len(match[0]) == 1 and condition[match.end() : match.end() + 1] == "'":
            yield "", match[0] + "'", position  # b'...', n'...': Lance panics, or reads another string than this file
            return
        if kind == "operator" and ("--" in match[0] or "/*" in match[0]):
            kind = "comment"
        if kind != "space":
            yield kind, match[0], position
        position = match.end()


def _stray(text: str) -> str:
    if text in ("'", '"', "`"):
        return f"a {text} that is never closed"
    return f"the statement's end {text!r}" if text == ";" else f"{text!r}, which no condition has,"
