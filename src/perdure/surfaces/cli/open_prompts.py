"""The open prompts of a chat, and which one the next line answers. No prompt is answered twice.

Above: conversation.py, which sends the answers. Below: prompts.py, which parses them. It draws and sends nothing.
"""

from typing import Any

from perdure.surfaces.cli.prompts import choose, mark, permission_for

Json = dict[str, Any]


class OpenPrompts:
    def __init__(self) -> None:
        self._prompts: dict[str, Json] = {}
        self._answers: Json = {}
        self._answering: set[str] = set()
        """Prompts whose answer is being sent."""
        self._reason = ""
        """The last reason for a denial."""

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
        """Its answer is being sent: the next line must not answer it again."""
        self._answers = {}
        self._answering.add(prompt["prompt_id"])

    def end(self, prompt: Json) -> None:
        self._answering.discard(prompt["prompt_id"])

    def answer(self, prompt: Json, text: str) -> Json | None:
        """The complete answer once all questions of the prompt are answered, else None. Raises NotUnderstood."""
        if prompt["kind"] == "permission":
            answer = permission_for(prompt, text)
            self._reason = answer.get("reason", "")
            return answer
        questions = prompt["questions"]
        question = questions[len(self._answers)]
        self._answers[question["question_id"]] = choose(question, text)
        return {"answers": self._answers} if len(self._answers) == len(questions) else None

    def take_reason(self) -> str:
        """Return and clear the last reason, for an agent whose protocol could not carry it with the answer."""
        reason, self._reason = self._reason, ""
        return reason

    def mark(self) -> str:
        """The prompt string of the input line."""
        prompt = self.first()
        if prompt is None:
            return "> "
        if prompt["kind"] == "permission":
            return mark(prompt)
        count = len(prompt["questions"])
        return f"answer {len(self._answers) + 1}/{count}> " if count > 1 else "answer> "
