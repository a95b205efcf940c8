"""A chat in a terminal: what is entered becomes commands to the server, what the server tells becomes text.

Above: chat.py. Below: the client and narrator in a thread of their own, the painter, the screen. The loop owns all
state; the thread only hands pieces over. A lost server changes one word of the status line: the draft stays, sends
are repeated under the same message_id, the stream goes on where it was.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple

from perdure.surfaces.cli import changes
from perdure.surfaces.cli.changes import Outcome
from perdure.surfaces.cli.chat import Beginning
from perdure.surfaces.cli.narration import Answered, Asked, Began, Ended, Finished, Narrator, Piece, Rested
from perdure.surfaces.cli.output import condition, duration, one_line
from perdure.surfaces.cli.paint import Painter
from perdure.surfaces.cli.prompts import NotUnderstood, choose, how_to_answer, permission_for
from perdure.surfaces.cli.reach import Failure, sentence_of
from perdure.surfaces.cli.screen import Screen
from perdure.surfaces.client import Client, Problem, Unreachable
from perdure.surfaces.stream import EventStream

Json = dict[str, Any]

PATIENCE_S = 120.0
LEAVE_AGAIN_S = 3.0
RECENT_SESSIONS = 10
HELP = """\
Enter sends, Alt+Enter breaks the line. Esc or Ctrl-C interrupts the running turn; Ctrl-C twice, or Ctrl-D, leaves.
/abort             interrupt the running turn
/queue TEXT        send TEXT when the running turn has ended (what you enter while it runs is queued, too)
/agent [NAME]      list the agents, or go on with another one
/fresh             give the agent the whole transcript with the next message
/retry [N] [TEXT]  work turn N, or the last one, again: with its own text or with another
/edit [N] [TEXT]   give that turn's message another text; without TEXT you change it here
/rewind N          drop turn N and all after it
/fork [N]          go on in a new session that has the turns up to N, or all
/plan              what the next turn would do, and why
/skip              give no answer to the open prompt
/status            why the session is in its state
/sessions          the sessions that were active last
/new               begin a new session
/quit              leave; the agent goes on with what it does"""


class News(NamedTuple):
    """What the thread hands over: pieces, whether the stream is live, and what ended it for good."""

    stream: EventStream
    pieces: list[Piece]
    is_live: bool = True
    trouble: str = ""


def converse(client: Client, beginning: Beginning, history: Path) -> int:
    client.patience_s = PATIENCE_S
    asyncio.run(Conversation(client, beginning, history).run())
    return 0


class Conversation:
    def __init__(self, client: Client, beginning: Beginning, history: Path) -> None:
        self._client = client
        self._beginning = beginning
        self._session_id = beginning.session_id
        self._next_agent, self._next_fresh = beginning.agent, beginning.fresh
        self._agent = beginning.agent or ""
        self._inbox: asyncio.Queue[News] = asyncio.Queue()
        self._stream: EventStream | None = None
        self._prompts: dict[str, Json] = {}
        self._answers: Json = {}
        self._answering: set[str] = set()
        """Prompts whose answer is on its way."""
        self._working_since: float | None = None
        self._live = True
        self._leave_before = 0.0
        self._tail = ""
        self._entering = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._screen = Screen(
            on_line=self._take_line,
            on_interrupt=self._interrupt,
            on_leave=self._leave,
            tail=lambda: self._tail,
            status=self._status,
            mark=self._mark,
            history=history,
        )
        self._painter = Painter(self._screen.columns)

    async def run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._start(self._paint())
        if self._session_id is not None:
            self._watch(self._session_id, None)
        self._start(self._note("Perdure. /help lists what can be done here."))
        try:
            await self._screen.app.run_async(handle_sigint=False)
        finally:
            self._unwatch()
            # Wakes requests that are being repeated; what was sent is sent.
            self._client.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # From the server -------------------------------------------------------------------------------------------------

    def _watch(self, session_id: str, position: int | None) -> None:
        stream = self._client.events(
            session_id,
            position,
            on_lost=lambda _: self._post(News(stream, [], is_live=False)),
            on_back=lambda: self._post(News(stream, [])),
        )
        self._stream = stream
        threading.Thread(target=self._follow, args=(session_id, stream), name="perdure-events", daemon=True).start()

    def _unwatch(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _follow(self, session_id: str, stream: EventStream) -> None:
        narrator = Narrator(lambda turn: list(self._client.transcript(session_id, turn)["turns"]))
        try:
            for event in stream:
                pieces = list(narrator.tell(event))
                if pieces:
                    self._post(News(stream, pieces))
        except (Problem, Unreachable) as error:
            self._post(News(stream, [], trouble=sentence_of(error)))

    def _post(self, news: News) -> None:
        try:
            self._loop.call_soon_threadsafe(self._inbox.put_nowait, news)
        except RuntimeError:
            return  # the chat was left and its loop is closed; nobody reads this any more

    async def _paint(self) -> None:
        """Everything that has come is painted at once, so that a flood costs few redraws."""
        while True:
            batch: list[News] = []
            try:
                async with asyncio.timeout(self._painter.redraw_in_s):
                    batch.append(await self._inbox.get())
            except TimeoutError:
                pass
            while not self._inbox.empty():
                batch.append(self._inbox.get_nowait())
            self._painter.columns = self._screen.columns
            text = "".join(self._take(news) for news in batch if news.stream is self._stream)
            self._tail = self._painter.tail()
            self._screen.show(text)
            self._screen.redraw()

    def _take(self, news: News) -> str:
        self._live = news.is_live
        if news.trouble:
            return self._painter.note(news.trouble, "red")
        text = []
        for piece in news.pieces:
            self._know(piece)
            text.append(self._painter.paint(piece))
            if isinstance(piece, Asked):
                text.append(self._painter.note(how_to_answer(piece.prompt), "dim"))
        return "".join(text)

    def _know(self, piece: Piece) -> None:
        if isinstance(piece, Began):
            self._working_since, self._agent = time.monotonic(), piece.agent or self._agent
        elif isinstance(piece, Finished | Rested | Ended):
            self._working_since = None
        elif isinstance(piece, Asked):
            self._prompts[piece.prompt["prompt_id"]] = piece.prompt
            self._screen.stash_draft()
        elif isinstance(piece, Answered):
            if self._prompts.pop(piece.prompt_id, None) is not None and piece.prompt_id not in self._answering:
                self._answers = {}
            if not self._prompts:
                self._screen.restore_draft()

    # From the person -------------------------------------------------------------------------------------------------

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._screen.fail(error)

    def _open_prompt(self) -> Json | None:
        """The prompt that the next line answers."""
        return next((prompt for key, prompt in self._prompts.items() if key not in self._answering), None)

    def _take_line(self, text: str) -> None:
        """Whether a line is an answer is decided as it is entered, by what the mark says then: a "yes" that was meant
        as a message must not grant what is asked for while it waits to be sent."""
        prompt, word = self._open_prompt(), text.strip().partition(" ")[0]
        if word.startswith("/") and "/" not in word[1:]:
            self._start(self._attempt(self._command(text.strip())))
        elif prompt is not None and word:
            self._answer(prompt, text.strip())
        elif word:
            self._start(self._attempt(self._enter(text)))

    async def _attempt(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (Problem, Unreachable) as error:
            await self._note(sentence_of(error), "red")
        except (Failure, NotUnderstood) as error:
            await self._note(str(error), "yellow")

    async def _command(self, text: str) -> None:
        word, _, rest = text.partition(" ")
        command = getattr(self, f"_do_{word[1:]}", None)
        if command is None:
            await self._note(f"There is no {word}. /help lists what there is.")
            return
        try:
            await command(rest.strip())
        except (Problem, Unreachable):
            if rest.strip() and not self._screen.draft:
                self._screen.draft = text
            raise

    async def _enter(self, text: str) -> None:
        # One after the other, so that messages arrive in the order in which they were entered.
        async with self._entering:
            await self._send(text)

    async def _send(self, text: str) -> None:
        begins = self._session_id is None
        how: Json = {"when_busy": "queue", "agent": self._next_agent, "fresh": self._next_fresh}
        if begins:
            how |= {"project": self._beginning.project, "workdir": self._beginning.workdir}
        try:
            sent = await asyncio.to_thread(self._client.send, text, self._session_id, **how)
        except (Problem, Unreachable):
            if not self._screen.draft:
                self._screen.draft = text
            raise
        self._next_agent, self._next_fresh = None, False
        if begins:
            self._session_id = str(sent["session_id"])
            self._watch(self._session_id, 0)

    def _answer(self, prompt: Json, text: str) -> None:
        try:
            answer = permission_for(prompt, text) if prompt["kind"] == "permission" else self._question(prompt, text)
        except NotUnderstood as error:
            self._start(self._note(str(error), "yellow"))
            return
        if answer is not None:
            # A second line must not be taken for a second answer.
            self._answers = {}
            self._answering.add(prompt["prompt_id"])
            self._start(self._attempt(self._give(prompt, answer)))

    def _question(self, prompt: Json, text: str) -> Json | None:
        """The whole answer, once each of the prompt's questions has its own."""
        questions = prompt["questions"]
        self._answers[questions[len(self._answers)]["question_id"]] = choose(questions[len(self._answers)], text)
        return {"answers": self._answers} if len(self._answers) == len(questions) else None

    async def _give(self, prompt: Json, answer: Json) -> None:
        session_id, prompt_id = self._session_id, prompt["prompt_id"]
        try:
            assert session_id is not None
            async with self._entering:
                await asyncio.to_thread(self._client.answer, session_id, prompt_id, answer)
            # The event says the same a moment later.
            self._know(Answered(prompt_id, "person", ""))
        finally:
            self._answering.discard(prompt_id)

    def _interrupt(self, is_control_c: bool) -> None:
        if self._working_since is not None or self._prompts:
            self._start(self._attempt(self._do_abort("")))
        elif is_control_c and self._screen.draft:
            self._screen.draft = ""
        elif is_control_c:
            if time.monotonic() < self._leave_before:
                self._leave()
                return
            self._leave_before = time.monotonic() + LEAVE_AGAIN_S
            self._start(self._note("Press Ctrl-C again to leave."))

    def _leave(self) -> None:
        self._screen.leave()

    # Slash commands --------------------------------------------------------------------------------------------------

    async def _do_help(self, _: str) -> None:
        await self._note(HELP)

    async def _do_abort(self, _: str) -> None:
        if self._session_id is not None:
            await asyncio.to_thread(self._client.abort, self._session_id)

    async def _do_queue(self, text: str) -> None:
        if text:
            await self._enter(text)
        else:
            await self._note("Give a text: /queue TEXT")

    async def _do_agent(self, name: str) -> None:
        agents = await asyncio.to_thread(self._client.agents)
        known = {agent["name"]: agent for agent in agents}
        if name in known:
            self._next_agent = self._agent = name
            await self._note(f"The next message goes to {name}.")
        else:
            problem = f"There is no agent {name!r}. " if name else ""
            await self._note(problem + "Agents: " + ", ".join(f"{key} ({known[key]['state']})" for key in known))

    async def _do_fresh(self, _: str) -> None:
        self._next_fresh = True
        await self._note("With the next message the agent gets the whole transcript anew.")

    async def _do_retry(self, line: str) -> None:
        agent = self._next_agent
        await self._change(lambda session_id: changes.retry(self._client, session_id, line, agent))
        self._next_agent, self._next_fresh = None, False

    async def _do_edit(self, line: str) -> None:
        await self._change(lambda session_id: changes.edit(self._client, session_id, line))

    async def _do_rewind(self, line: str) -> None:
        await self._change(lambda session_id: changes.rewind(self._client, session_id, line))

    async def _do_fork(self, line: str) -> None:
        await self._change(lambda session_id: changes.fork(self._client, session_id, line))

    async def _do_plan(self, _: str) -> None:
        agent, fresh = self._next_agent, self._next_fresh
        await self._change(lambda session_id: changes.plan(self._client, session_id, agent, fresh))

    async def _change(self, work: Callable[[str], Outcome]) -> None:
        session_id = self._session_id
        if session_id is None:
            raise NotUnderstood("No session yet. The first message begins one.")
        async with self._entering:
            outcome = await asyncio.to_thread(work, session_id)
            if outcome.session_id:
                self._part()
                self._session_id = outcome.session_id
                self._watch(outcome.session_id, None)
        if outcome.draft and not self._screen.draft:
            self._screen.draft = outcome.draft
        if outcome.note:
            await self._note(outcome.note)

    async def _do_skip(self, _: str) -> None:
        if (prompt := self._open_prompt()) is not None:
            self._answering.add(prompt["prompt_id"])
            await self._give(prompt, {"cancel": True})

    async def _do_status(self, _: str) -> None:
        if self._session_id is None:
            await self._note("No session yet. The first message begins one.")
            return
        why = await asyncio.to_thread(self._client.explain, self._session_id)
        await self._note(f"{self._session_id}: {why['why']}")

    async def _do_sessions(self, _: str) -> None:
        page = await asyncio.to_thread(lambda: self._client.sessions(limit=RECENT_SESSIONS))
        lines = [f"{one['id']}  {condition(one)}  {one_line(one['title'] or '', 50)}" for one in page["sessions"]]
        await self._note("\n".join(lines) or "There is no session yet.")

    async def _do_new(self, _: str) -> None:
        self._part()
        await self._note("The next message begins a new session.")

    def _part(self) -> None:
        """Look no more at the session of this chat. It goes on by itself."""
        self._unwatch()
        self._session_id, self._working_since, self._live = None, None, True
        self._prompts, self._answers = {}, {}
        self._screen.restore_draft()
        self._painter.paint(Rested())

    async def _do_quit(self, _: str) -> None:
        self._leave()

    # What the screen shows -------------------------------------------------------------------------------------------

    async def _note(self, text: str, style: str = "dim") -> None:
        painted = self._painter.note(text, style)
        self._tail = self._painter.tail()
        self._screen.show(painted)

    def _mark(self) -> str:
        prompt = self._open_prompt()
        if prompt is None:
            return "> "
        if prompt["kind"] == "permission":
            return "y/a/n> "
        count = len(prompt["questions"])
        return f"answer {len(self._answers) + 1}/{count}> " if count > 1 else "answer> "

    def _status(self) -> str:
        if not self._live:
            return "Reconnecting ... your draft is kept."
        name = f" {self._agent}" if self._agent else ""
        if self._prompts:
            return f"Waiting for you{name}"
        if self._working_since is not None:
            spent = duration((time.monotonic() - self._working_since) // 1 * 1000).replace(".0", "")
            return f"Working{name} {spent}, Esc interrupts"
        return f"Idle{name}" if self._session_id else f"New session{name}"
