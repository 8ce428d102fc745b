"""The justified differences from a real worker, as docs/connect.md shows them: made of the data that the conversation
is judged by (`tests/data/connect/differences.toml`), so that the page cannot say less than the tests allow.

    python -m tests.broker.differences_page      # writes the part of the page anew
"""

from __future__ import annotations

from pathlib import Path

from tests.broker.conversation import Call, Reason, conversation, justified, recorded

PAGE = Path(__file__).parents[2] / "docs" / "connect.md"
BEGIN, END = "<!-- differences: made of tests/data/connect/differences.toml -->\n", "<!-- end of differences -->"
PLACES = {"status": "the status", "header": "a header", "body": "the body", "same": "a value"}


def rendered() -> str:
    calls = {call.id: call for call in conversation()}
    head = f"| of {len(calls)} calls | differs | because |\n| --- | --- | --- |\n"
    return head + "".join(_row(reason, calls) for reason in justified())


def _row(reason: Reason, calls: dict[str, Call]) -> str:
    named = (
        ["any"] if "*" in reason.ids else [f"{one} ({recorded()[one].status})" for one in reason.ids if one in calls]
    )
    kinds = {PLACES[where.partition(".")[0]] for where in reason.where}
    where = [text for text in PLACES.values() if text in kinds]
    cells = ("; ".join(named), ", ".join(where) + (" at times" if reason.sometimes else ""), reason.reason)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def shown() -> str:
    """As the page has it now."""
    _, _, behind = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return behind.partition(END)[0]


if __name__ == "__main__":
    PAGE.write_text(PAGE.read_text(encoding="utf-8").replace(BEGIN + shown(), BEGIN + rendered()), encoding="utf-8")
