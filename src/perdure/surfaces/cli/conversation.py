"""The chat in a terminal: turns input into requests, and events into text.

Above: chat.py. Below: the feed, which follows the session in a thread; the painter; the screen. The event loop owns all
state; the thread only posts pieces. If the server is lost, the status line shows it: the draft stays, sends are retried
with the same message_id, and the stream continues where it stopped.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import click

from perdure.core.slash_commands import names
from perdure.surfaces.cli import chat_commands, chat_files, chat_history, choosing
from perdure.surfaces.cli.background import ServerWatch
from perdure.surfaces.cli.chat import Beginning
from perdure.surfaces.cli.chat_commands import Message, Mistake, Own
from perdure.surfaces.cli.chat_history import Outcome
from perdure.surfaces.cli.completion import ChatCompleter
from perdure.surfaces.cli.config_options import values
from perdure.surfaces.cli.destination import Destination
from perdure.surfaces.cli.feed import Feed, News
from perdure.surfaces.cli.narration import (
    Answered,
    Asked,
    Began,
    Details,
    Ended,
    Finished,
    Line,
    Piece,
    Rested,
    Starts,
    Waits,
)
from perdure.surfaces.cli.open_prompts import OpenPrompts
from perdure.surfaces.cli.output import seconds_since
from perdure.surfaces.cli.paint import Painter
from perdure.surfaces.cli.pasting import Entry, Pastes, clipboard_image
from perdure.surfaces.cli.places import home_shortened
from perdure.surfaces.cli.prompts import NotUnderstood
from perdure.surfaces.cli.reach import Failure, sentence_of
from perdure.surfaces.cli.screen import Screen
from perdure.surfaces.cli.situation import Situation, doing_now, farewell, lost_line, queue_lines, status_line
from perdure.surfaces.cli.terms import as_typed
from perdure.surfaces.client import Client, Problem, Unreachable, new_message_id

Json = dict[str, Any]

PATIENCE_S = 120.0
LEAVE_AGAIN_S = 3.0
SERVER_LOOK_EVERY_S = 1.0


def converse(client: Client, beginning: Beginning, server: ServerWatch, history: Path) -> int:
    client.patience_s = PATIENCE_S
    conversation = Conversation(client, beginning, server, history)
    try:
        asyncio.run(conversation.run())
    finally:
        click.echo(conversation.farewell(), nl=False)
    return 0


class Conversation:
    def __init__(self, client: Client, beginning: Beginning, server: ServerWatch, history: Path) -> None:
        self._client = client
        self._server = server
        self._beginning = beginning
        self._to = Destination(client, beginning.place.workdir)
        self._to.session_id, self._to.next_agent = beginning.session_id, beginning.agent
        self._next_fresh = beginning.fresh
        self._next_config = dict(beginning.config)
        """The model and mode for a session that the next message starts."""
        self._pastes = Pastes()
        self._sending: list[str] = []
        self._feed = Feed(client)
        self._prompts = OpenPrompts()
        self._working_since: float | None = None
        self._lost_since: float | None = None
        """When the connection to the server was lost."""
        self._leave_before = 0.0
        self._tail = ""
        self._entering = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._screen = Screen(
            on_line=self._take_line,
            on_interrupt=self._interrupt,
            on_expand=lambda: self._screen.show(self._painter.expand()),
            on_paste=lambda text: self._pastes.paste(text, is_local=beginning.is_local),
            on_clipboard=lambda: self._start(self._paste_image()),
            tail=lambda: self._tail,
            waiting=lambda: queue_lines(self._to.situation.queue, self._sending, self._screen.columns),
            status=self._status,
            mark=self._prompts.mark,
            kept=lambda text: self._pastes.expand(text).text,
            completer=ChatCompleter(self._to.slash, self._to.values, self._to.files),
            history=history,
        )
        self._painter = Painter(self._screen.columns)

    async def run(self) -> None:
        self._start(self._paint())
        self._start(self._to.refresh())
        self._start(self._watch_server())
        if self._to.session_id is not None:
            self._feed.open(self._to.session_id, None)
        self._start(self._note(self._beginning.header))
        try:
            await self._screen.app.run_async(handle_sigint=False)
        finally:
            self._feed.close()
            # Ends retries. A message that was already sent stays sent.
            self._client.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _watch_server(self) -> None:
        while True:
            await asyncio.sleep(SERVER_LOOK_EVERY_S)
            if said := await asyncio.to_thread(self._server.look):
                await self._note(said, "yellow")

    # From the server -------------------------------------------------------------------------------------------------

    async def _paint(self) -> None:
        """Paint all pending news together, so that a burst costs few redraws."""
        while True:
            batch: list[News] = []
            try:
                async with asyncio.timeout(self._painter.redraw_in_s):
                    batch.append(await self._feed.news.get())
            except TimeoutError:
                pass
            while not self._feed.news.empty():
                batch.append(self._feed.news.get_nowait())
            self._painter.columns = self._screen.columns
            text = "".join(self._take(news) for news in batch if news.stream is self._feed.stream)
            self._tail = self._painter.tail()
            self._screen.show(text)
            self._screen.redraw()

    def _take(self, news: News) -> str:
        self._lost_since = None if news.is_live else self._lost_since or time.monotonic()
        if news.trouble:
            return self._painter.note(news.trouble, "red")
        if news.event is not None and news.event.type == "system":
            if news.event.data.get("code") == "reason_not_told" and (reason := self._prompts.take_reason()):
                self._screen.give_back(reason)
        elif news.event is not None:
            self._to.situation.follow(news.event.type, news.event.data)
        text = []
        for piece in news.pieces:
            self._know(piece)
            if isinstance(piece, Line) and piece.tone == "user":
                piece = Line(self._pastes.echo(piece.text), "user")
            text.append(self._painter.paint(piece))
        return "".join(text)

    def _know(self, piece: Piece) -> None:
        if isinstance(piece, Began):
            self._working_since = time.monotonic() - (seconds_since(piece.started_at) if piece.started_at else 0)
        elif isinstance(piece, Starts):
            self._working_since = time.monotonic()
        elif isinstance(piece, Waits | Finished | Rested | Ended):
            self._working_since = None
        elif isinstance(piece, Asked):
            self._prompts.add(piece.prompt)
            self._screen.stash_draft()
        elif isinstance(piece, Answered):
            self._prompts.remove(piece.prompt_id)
            if not self._prompts:
                self._screen.restore_draft()

    # From the user ---------------------------------------------------------------------------------------------------

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._screen.fail(error)

    def _take_line(self, text: str) -> None:
        """Decide when a line is entered whether it answers a prompt. A "yes" that was meant as a message must not grant
        a permission request that arrives while it waits to be sent."""
        if not text.strip():
            return
        prompt, entry = self._prompts.first(), self._pastes.expand(text)
        known = self._to.commands
        meant = chat_commands.read(entry.text, None if known is None else names(known), self._to.agent)
        if isinstance(meant, Own):
            self._start(self._attempt(self._command(meant, text)))
        elif prompt is not None and not (isinstance(meant, Message) and meant.command):
            self._answer(prompt, entry.text.strip())
        elif isinstance(meant, Mistake):
            self._screen.give_back(text)
            self._start(self._note(meant.sentence, "yellow"))
        else:
            self._start(self._attempt(self._enter(entry._replace(text=meant.text))))

    async def _attempt(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (Problem, Unreachable) as error:
            # The session's events report an operation that was refused.
            if not (isinstance(error, Problem) and "operation_id" in error.facts):
                await self._note(sentence_of(error, in_chat=True), "red")
        except (Failure, NotUnderstood) as error:
            await self._note(str(error), "yellow")

    async def _command(self, command: Own, line: str) -> None:
        try:
            await getattr(self, f"_do_{command.name}")(command.rest)
        except (Problem, Unreachable):
            if command.rest:
                self._screen.give_back(line)
            raise

    async def _enter(self, entry: Entry) -> None:
        self._sending.append(entry.shown or entry.text)
        try:
            # One at a time, so that messages arrive in the order in which they were entered.
            async with self._entering:
                await self._send(entry)
        finally:
            self._sending.remove(entry.shown or entry.text)

    async def _send(self, entry: Entry) -> None:
        begins = self._to.session_id is None
        how: Json = {"when_busy": "queue", "agent": self._to.next_agent, "fresh": self._next_fresh}
        how |= {"message_id": new_message_id(), "attachments": entry.attachments}
        if begins:
            how |= {**self._beginning.place.fields, **self._next_config}
        self._pastes.remember(how["message_id"], entry)
        try:
            sent = await asyncio.to_thread(self._client.send, entry.text, self._to.session_id, **how)
        except (Problem, Unreachable):
            self._screen.give_back(entry.shown or entry.text)
            raise
        self._to.next_agent, self._next_fresh, self._next_config = None, False, {}
        if begins:
            self._to.session_id = str(sent["session_id"])
            self._feed.open(self._to.session_id, 0)

    def _answer(self, prompt: Json, text: str) -> None:
        try:
            answer = self._prompts.answer(prompt, text)
        except NotUnderstood as error:
            self._start(self._note(str(error), "yellow"))
            return
        if answer is not None:
            self._prompts.begin(prompt)
            self._start(self._attempt(self._give(prompt, answer)))

    async def _give(self, prompt: Json, answer: Json) -> None:
        session_id, prompt_id = self._to.session_id, prompt["prompt_id"]
        try:
            assert session_id is not None
            async with self._entering:
                await asyncio.to_thread(self._client.answer, session_id, prompt_id, answer)
            # Update now; the event follows a moment later.
            self._know(Answered(prompt_id, "person", ""))
        finally:
            self._prompts.end(prompt)

    async def _take_back(self) -> None:
        """Withdraw queued messages, and put them back into the input."""
        session_id, waiting = self._to.session_id, list(self._to.situation.queue)
        assert session_id is not None
        texts = []
        for queued in waiting:
            try:
                await asyncio.to_thread(self._client.unqueue, session_id, queued["message_id"])
            except Problem:
                continue  # no longer queued: its turn has started
            self._to.situation.follow("message_unqueued", queued)
            texts.append(self._pastes.entered(queued["message_id"], queued["text"]))
            self._to.next_agent = queued.get("agent") or self._to.next_agent
        if texts:
            self._screen.give_back("\n".join(texts))

    def _interrupt(self, is_control_c: bool) -> None:
        is_live = self._lost_since is None
        if is_live and self._to.situation.queue and self._to.session_id is not None:
            self._start(self._attempt(self._take_back()))
        elif is_live and (self._working_since is not None or self._to.situation.waits_for or self._prompts):
            self._start(self._attempt(self._do_abort("")))
        elif is_control_c and is_live and self._screen.draft:
            self._screen.draft = ""
        elif is_control_c:
            if time.monotonic() < self._leave_before:
                self._screen.leave()
                return
            self._leave_before = time.monotonic() + LEAVE_AGAIN_S
            self._start(self._note("Press Ctrl-C again to leave."))

    # Slash commands --------------------------------------------------------------------------------------------------

    async def _do_help(self, _: str) -> None:
        await self._note(chat_commands.help_text(self._to.commands, self._to.agent, self._screen.columns))

    async def _do_abort(self, _: str) -> None:
        if self._to.session_id is not None:
            await asyncio.to_thread(self._client.abort, self._to.session_id)

    async def _do_queue(self, text: str) -> None:
        if text:
            await self._enter(Entry(text))
        else:
            await self._note("Usage: /queue TEXT")

    async def _do_agent(self, name: str) -> None:
        await self._to.refresh()
        if name in self._to.agents:
            self._to.next_agent, self._next_config = name, {}
        await self._note(choosing.agents_text(self._to.agents, self._to.agent, name))

    async def _do_model(self, given: str) -> None:
        await self._configure("model", given)

    async def _do_mode(self, given: str) -> None:
        await self._configure("mode", given)

    async def _configure(self, config_id: str, given: str) -> None:
        session_id = self._to.session_id
        if session_id is not None and self._to.next_agent in (None, self._to.situation.agent):
            known = await asyncio.to_thread(self._client.session, session_id)
            current = getattr(self._to.situation, config_id)
        elif session_id is not None:
            raise NotUnderstood(f"Send {self._to.next_agent} a message first, then choose its {config_id}.")
        else:
            await self._to.refresh()
            known, current = self._to.agents.get(self._to.agent, {}), self._next_config.get(config_id)
        offered = values(known, config_id)
        if not given:
            await self._note(choosing.listing(config_id, offered, current))
        elif session_id is not None:
            await self._note(await asyncio.to_thread(choosing.choose, self._client, known, config_id, given))
        else:
            self._next_config[config_id] = choosing.picked(config_id, offered, given)
            await self._note(f"The new session will use {config_id} {self._next_config[config_id]}.")

    async def _do_fresh(self, _: str) -> None:
        self._next_fresh = True
        await self._note("The next message restarts the agent's context and replays the conversation.")

    async def _do_retry(self, line: str) -> None:
        agent = self._to.next_agent
        await self._change(lambda session_id: chat_history.retry(self._client, session_id, line, agent))
        self._to.next_agent, self._next_fresh = None, False

    async def _do_edit(self, line: str) -> None:
        await self._change(lambda session_id: chat_history.edit(self._client, session_id, line))

    async def _do_rewind(self, line: str) -> None:
        await self._change(lambda session_id: chat_history.rewind(self._client, session_id, line))

    async def _do_fork(self, line: str) -> None:
        await self._change(lambda session_id: chat_history.fork(self._client, session_id, line))

    async def _do_changes(self, line: str) -> None:
        await self._change(lambda session_id: chat_files.changes(self._client, session_id, line))

    async def _do_restore(self, line: str) -> None:
        await self._change(lambda session_id: chat_files.restore(self._client, session_id, line))

    async def _do_undo(self, choice: str) -> None:
        await self._change(lambda session_id: chat_files.undo(self._client, session_id, choice))

    async def _do_commit(self, message: str) -> None:
        await self._change(lambda session_id: chat_files.commit(self._client, session_id, message))

    async def _do_plan(self, _: str) -> None:
        agent, fresh = self._to.next_agent, self._next_fresh
        await self._change(lambda session_id: chat_history.plan(self._client, session_id, agent, fresh))

    async def _change(self, work: Callable[[str], Outcome]) -> None:
        session_id = self._to.session_id
        if session_id is None:
            raise NotUnderstood("No session yet. The first message starts one.")
        async with self._entering:
            outcome = await asyncio.to_thread(work, session_id)
            if outcome.session_id:
                self._open(outcome.session_id)
        if outcome.draft and not self._screen.draft:
            self._screen.draft = outcome.draft
        if outcome.note:
            await self._note(outcome.note)
        if outcome.rows:
            self._screen.show(self._painter.paint(Details(outcome.rows, ends=False)))

    async def _do_skip(self, _: str) -> None:
        if (prompt := self._prompts.first()) is not None:
            self._prompts.begin(prompt)
            await self._give(prompt, {"cancel": True})

    async def _do_status(self, _: str) -> None:
        if self._to.session_id is None:
            await self._note("No session yet. The first message starts one.")
            return
        why = await asyncio.to_thread(self._client.explain, self._to.session_id)
        where = home_shortened(self._to.situation.workdir)
        await self._note(f"{self._to.session_id}: {why['why']}\n{self._to.situation.agent} works in {where}.")

    async def _do_sessions(self, given: str) -> None:
        # A number refers to the list on the screen, or else to the current list.
        if not given or not self._to.sessions:
            self._to.sessions = await asyncio.to_thread(choosing.recent, self._client)
        if not given:
            await self._note(choosing.sessions_text(self._to.sessions, self._to.session_id, self._beginning.where))
            return
        async with self._entering:
            meant = await asyncio.to_thread(choosing.session_meant, self._client, self._to.sessions, given)
            if meant["id"] != self._to.session_id:
                self._open(str(meant["id"]))
        await self._note(f"Switched to {meant['id']}, which works in {home_shortened(meant['workdir'])}.")

    def _open(self, session_id: str) -> None:
        self._part()
        # The next message goes to the session's own agent.
        self._to.session_id, self._to.next_agent = session_id, None
        self._feed.open(session_id, None)

    async def _do_new(self, _: str) -> None:
        self._part()
        await self._note(f"The next message starts a new session in {self._beginning.where}.")

    def _part(self) -> None:
        """Stop following the session of this chat. The session continues."""
        self._feed.close()
        self._to.next_agent = self._to.next_agent or self._to.situation.agent or None
        self._to.session_id, self._working_since, self._lost_since = None, None, None
        self._prompts.clear()
        self._to.situation = Situation()
        self._screen.restore_draft()
        self._painter.paint(Rested())

    async def _do_quit(self, _: str) -> None:
        self._screen.leave()

    # What the screen shows -------------------------------------------------------------------------------------------

    async def _note(self, text: str, style: str = "dim") -> None:
        painted = self._painter.note(as_typed(text), style)
        self._tail = self._painter.tail()
        self._screen.show(painted)

    def _status(self) -> str:
        lost_since = self._lost_since or self._server.gone_since
        if lost_since is not None:
            return lost_line(time.monotonic() - lost_since, self._screen.columns)
        situation = self._to.situation
        if self._to.session_id is None:
            situation.model, situation.mode = self._next_config.get("model"), self._next_config.get("mode")
        working_s = None if self._working_since is None else time.monotonic() - self._working_since
        doing = doing_now(situation, self._to.known_agent, self._to.session_id, working_s, bool(self._prompts))
        return status_line(doing, situation, self._screen.columns)

    def farewell(self) -> str:
        # The output so far stays in the terminal.
        said = self._painter.finish()
        situation, is_working = self._to.situation, self._working_since is not None
        is_waiting = bool(situation.waits_for)
        return said + farewell(self._to.session_id, is_working, len(situation.queue), is_waiting=is_waiting)

    async def _paste_image(self) -> None:
        found = await asyncio.to_thread(clipboard_image)
        if isinstance(found, str):
            await self._note(found, "yellow")
        else:
            self._screen.insert(f"{self._pastes.attach(found)} ")
