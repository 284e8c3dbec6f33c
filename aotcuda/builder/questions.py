"""What sources asked of a GPU while they were imported, as the build's report tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aotcuda.builder.frontends.protocol import Question


def report(questions: Iterable[Question]) -> tuple[str, ...]:
    """A line for each question at each place: what was answered, or that it was not."""
    questions = list(questions)
    more = {question.place for question in questions if not question.mere}
    found: dict[tuple[str, str], list[Question]] = {}
    for question in questions:
        if not question.mere or question.place not in more:
            found.setdefault((question.place, question.asked), []).append(question)
    return tuple(_line(place, asked, asking) for (place, asked), asking in sorted(found.items(), key=_order))


def _line(place: str, asked: str, questions: list[Question]) -> str:
    first = questions[0]
    if first.refused:
        return f"{place} asked a GPU for {asked}, got an error, since {first.answer}, and went on without"
    answers = " or ".join(dict.fromkeys(question.answer for question in questions))
    each = ", by the target; sources were imported for each" if len(questions) > 1 and first.depends else ""
    return f"{place} asked a GPU for {asked} and was told {answers}{each}"


def _order(item: tuple[tuple[str, str], list[Question]]) -> tuple[str, int, str]:
    (place, asked), _ = item
    file, _, line = place.rpartition(":")
    return file, int(line), asked
