"""The prompts that are open in a chat, and what a line answers. An answer that is on its way is not given twice.

Above: conversation.py, which sends the answers. Below: prompts.py for the words. It draws nothing and sends nothing.
"""

from typing import Any

from perdure.surfaces.cli.prompts import choose, mark, permission_for

Json = dict[str, Any]


class OpenPrompts:
    def __init__(self) -> None:
        self._prompts: dict[str, Json] = {}
        self._answers: Json = {}
        self._answering: set[str] = set()
        """Prompts whose answer is on its way."""
        self._reason = ""
        """The reason that was given last."""

    def __bool__(self) -> bool:
        return bool(self._prompts)

    def first(self) -> Json | None:
        """The prompt that the next line answers."""
        return next((prompt for key, prompt in self._prompts.items() if key not in self._answering), None)

    def add(self, prompt: Json) -> None:
        self._prompts[prompt["prompt_id"]] = prompt

    def remove(self, prompt_id: str) -> None:
        if self._prompts.pop(prompt_id, None) is not None and prompt_id not in self._answering:
            self._answers = {}

    def clear(self) -> None:
        self._prompts, self._answers = {}, {}

    def begin(self, prompt: Json) -> None:
        """Its answer is on its way: a second line must not be taken for a second answer."""
        self._answers = {}
        self._answering.add(prompt["prompt_id"])

    def end(self, prompt: Json) -> None:
        self._answering.discard(prompt["prompt_id"])

    def answer(self, prompt: Json, text: str) -> Json | None:
        """The whole answer, once each of the prompt's questions has its own. Raises NotUnderstood."""
        if prompt["kind"] == "permission":
            answer = permission_for(prompt, text)
            self._reason = answer.get("reason", "")
            return answer
        questions = prompt["questions"]
        question = questions[len(self._answers)]
        self._answers[question["question_id"]] = choose(question, text)
        return {"answers": self._answers} if len(self._answers) == len(questions) else None

    def take_reason(self) -> str:
        """The reason that was given last, once: for an agent that could not be given it with the answer."""
        reason, self._reason = self._reason, ""
        return reason

    def mark(self) -> str:
        """The prompt of the input line."""
        prompt = self.first()
        if prompt is None:
            return "> "
        if prompt["kind"] == "permission":
            return mark(prompt)
        count = len(prompt["questions"])
        return f"answer {len(self._answers) + 1}/{count}> " if count > 1 else "answer> "
