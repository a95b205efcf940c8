"""Decides whether a turn continues in the agent's native session or needs the whole transcript.

One pure function makes the plan. The plan determines both which native session the agent opens and which turns it
receives. `live` and `resumed` send the new message with the turns that the native session lacks; `fresh` opens a new
native session and sends the full transcript. A plan without context and without transcript is impossible.

Above: turns.py, and the verb that explains a plan. Below: the session's state.
"""

from typing import Literal

from msgspec import Struct

from perdure.core.state import Attached, Binding


class AgentFacts(Struct, frozen=True, kw_only=True):
    """What this machine knows about an agent, for one working directory."""

    driver: str
    can_resume: bool
    workdir_id: str
    fingerprint: str
    shares: bool = False
    """One process of this agent serves several sessions."""
    resume: Literal["auto", "never"] = "auto"
    commands: tuple[str, ...] | None = None
    """The slash commands that it last reported, in any session; None if it has not run yet."""


class ContextPlan(Struct, frozen=True):
    context: Literal["live", "resumed", "fresh"]
    reason: str
    native_session_id: str | None = None
    seen: int = 0
    """The last turn that the native session holds."""
    guards: dict[str, bool] = {}
    """Each guard that was checked, and whether it held."""


def _id(binding: Binding | None) -> str | None:
    return binding.native_session_id if binding is not None else None


def resolve_resume(
    *,
    agent: str,
    facts: AgentFacts,
    fresh: bool,
    binding: Binding | None,
    context_version: int,
    poisoned: list[str],
    attached: Attached | None,
    last_visible_turn: int,
    scope: str = "all",
    sole_holder: bool = True,
    unpinned: bool = False,
) -> ContextPlan:
    """The plan for the next turn. Guards are checked in order; the first that fails is the reason.

    `unpinned`: the agent's native session became unusable, and it has no new one yet.

    `sole_holder`: the agent issued the native session's id only once. Otherwise the id is ambiguous and must not be
    resumed. A process that serves only this session still holds the right context; a shared process doesn't, because
    it tells sessions apart only by their ids."""
    live = (
        attached is not None
        and attached.agent == agent
        and attached.opened
        and binding is not None
        and attached.native_session_id == binding.native_session_id
    )
    guards: dict[str, bool] = {}

    def holds(name: str, value: bool) -> bool:
        guards[name] = value
        return value

    reason = ""
    if not holds("has_history", last_visible_turn > 0):
        reason = "first_turn"
    elif not holds("not_asked_fresh", not fresh):
        reason = "fresh_requested"
    elif not holds("resume_on", facts.resume != "never"):
        reason = "resume_off"
    elif not holds("has_binding", binding is not None or unpinned):
        reason = "no_native_session"
    elif not holds("not_poisoned", not unpinned and _id(binding) not in poisoned) or binding is None:
        reason = "native_session_poisoned"
    elif not holds("prior_answer", binding.last_turn > 0):
        reason = "no_prior_answer"
    elif not holds("confirmed", binding.confirmed):
        reason = "last_turn_not_confirmed"
    elif not holds("same_epoch", binding.context_version == context_version):
        reason = "history_changed"
    elif not holds("same_scope", binding.scope == scope):
        reason = "scope_changed"
    elif not holds("same_workdir", binding.workdir_id == facts.workdir_id):
        reason = "workdir_changed"
    elif not holds("same_runtime", binding.fingerprint == facts.fingerprint):
        reason = "runtime_changed"
    elif live and (sole_holder or not facts.shares):
        return ContextPlan("live", "process_holds_context", binding.native_session_id, binding.last_turn, guards)
    elif not holds("sole_holder", sole_holder):
        reason = "native_session_shared"
    elif not holds("agent_can_resume", facts.can_resume):
        reason = "agent_cannot_resume"
    else:
        return ContextPlan("resumed", "native_session_confirmed", binding.native_session_id, binding.last_turn, guards)
    return ContextPlan("fresh", reason, None, 0, guards)
