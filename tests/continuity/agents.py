"""The real ACP agents, and how each is configured for a scripted model: environment, settings, and the mode that asks.

Above: stage.py. Below: what `./run agents` installed. Each agent gets its own home directory, a dummy key and the
address of the model, and nothing from the machine. Everything specific to one agent is here and nowhere else.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

MODEL = "scripted"
CONTEXT_TOKENS = 200_000


class Place(NamedTuple):
    """Where one agent runs: the model's address, its home directory and its working directory."""

    url: str
    home: Path
    workdir: Path

    def write(self, name: str, text: str) -> Path:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path


class Agent(NamedTuple):
    name: str
    set_up: Callable[[Place], dict[str, str]]
    """Writes its settings and returns its environment."""
    asking_mode: str | None = None
    """The mode in which it asks before it acts, if that is not its default."""
    runs: str = "bash {command}"
    """How its model runs a shell command, in a way that needs a permission if possible."""
    asks: Literal["before commands", "before edits", "never"] = "before commands"
    asks_at_once: bool = False
    """For two such calls in one answer, it asks for both at the same time, not one after the other."""
    question: str = ""
    """What the model does to ask the user for a colour, red or blue. Empty: the agent can't ask."""
    question_settings: dict[str, str] = {}
    """Settings without which it doesn't ask."""
    remark: str = ""
    """What users should know about it, for the page."""
    in_ci: bool = False

    def makes(self, file: Path) -> str:
        """What its model is told to do to create a file, with a permission."""
        return f"write {file} made" if self.asks == "before edits" else self.running(f"touch {file}")

    def running(self, command: str) -> str:
        return self.runs.replace("{command}", command)


def environment(agent: Agent, place: Place) -> dict[str, str]:
    """Everything it needs besides the small base environment that every agent gets."""
    folders = {
        f"XDG_{name}_HOME": str(place.home / f".{name.lower()}") for name in ("CONFIG", "DATA", "STATE", "CACHE")
    }
    return {"HOME": str(place.home), "NO_PROXY": "127.0.0.1", **folders, **agent.set_up(place)}


def _claude(place: Place) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": place.url,
        "ANTHROPIC_API_KEY": "dummy",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
    }


def _codex(place: Place) -> dict[str, str]:
    place.write(
        ".codex/config.toml",
        f'model = "{MODEL}"\nmodel_provider = "{MODEL}"\ncheck_for_update_on_startup = false\n'
        f'[model_providers.{MODEL}]\nname = "{MODEL}"\nbase_url = "{place.url}/v1"\nwire_api = "responses"\n'
        'env_key = "SCRIPTED_KEY"\nrequires_openai_auth = false\nsupports_websockets = false\n'
        f'[projects."{place.workdir}"]\ntrust_level = "trusted"\n',
    )
    return {"CODEX_HOME": str(place.home / ".codex"), "SCRIPTED_KEY": "dummy", "NO_BROWSER": "1"}


def _opencode(place: Place) -> dict[str, str]:
    limit = {"context": CONTEXT_TOKENS, "output": 8192}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": MODEL,
        "options": {"baseURL": f"{place.url}/v1", "apiKey": "dummy"},
        "models": {MODEL: {"name": MODEL, "limit": limit}},
    }
    settings = {
        "provider": {MODEL: provider},
        "model": f"{MODEL}/{MODEL}",
        "small_model": f"{MODEL}/{MODEL}",
        "autoupdate": False,
        "share": "disabled",
        "permission": {"edit": "ask", "bash": "ask"},
    }
    place.write(".config/opencode/opencode.json", json.dumps(settings))
    return {
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    }


def _gemini(place: Place) -> dict[str, str]:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "general": {"enableAutoUpdate": False, "disableAutoUpdate": True, "disableUpdateNag": True},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
    }
    place.write(".gemini/settings.json", json.dumps(settings))
    return {
        "GEMINI_API_KEY": "dummy",
        "GOOGLE_GEMINI_BASE_URL": place.url,
        "GEMINI_CLI_NO_RELAUNCH": "true",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    }


def _qwen(place: Place) -> dict[str, str]:
    settings = {
        "security": {"auth": {"selectedType": "openai"}, "folderTrust": {"enabled": False}},
        "general": {"enableAutoUpdate": False, "disableAutoUpdate": True},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
    }
    place.write(".qwen/settings.json", json.dumps(settings))
    return {
        "OPENAI_API_KEY": "dummy",
        "OPENAI_BASE_URL": f"{place.url}/v1",
        "OPENAI_MODEL": MODEL,
        "QWEN_CODE_NO_RELAUNCH": "true",
    }


def _copilot(place: Place) -> dict[str, str]:
    return {
        "COPILOT_PROVIDER_BASE_URL": f"{place.url}/v1",
        "COPILOT_PROVIDER_TYPE": "openai",
        "COPILOT_PROVIDER_API_KEY": "dummy",
        "COPILOT_MODEL": MODEL,
        "COPILOT_OFFLINE": "true",
        "COPILOT_AUTO_UPDATE": "false",
        "COPILOT_HOME": str(place.home / ".copilot"),
    }


def _vibe(place: Place) -> dict[str, str]:
    place.write(
        ".vibe/config.toml",
        f'active_model = "{MODEL}"\nenable_telemetry = false\nenable_update_checks = false\n'
        "enable_auto_update = false\n"
        f'[[providers]]\nname = "{MODEL}"\napi_base = "{place.url}/v1"\napi_key_env_var = "SCRIPTED_KEY"\n'
        'api_style = "openai"\nbackend = "generic"\n'
        f'[[models]]\nname = "{MODEL}"\nprovider = "{MODEL}"\nalias = "{MODEL}"\n',
    )
    return {"VIBE_HOME": str(place.home / ".vibe"), "SCRIPTED_KEY": "dummy"}


def _fast_agent(place: Place) -> dict[str, str]:
    # It reads its settings from its working directory.
    settings = f'generic:\n  api_key: dummy\n  base_url: "{place.url}/v1"\n'
    (place.workdir / "fastagent.config.yaml").write_text(settings)
    return {}


def _hermes(place: Place) -> dict[str, str]:
    place.write(
        ".hermes/config.yaml",
        f"model:\n  default: {MODEL}\n  provider: custom\n  base_url: {place.url}/v1\n",
    )
    return {
        "HERMES_HOME": str(place.home / ".hermes"),
        "OPENAI_API_KEY": "dummy",
        "OPENAI_BASE_URL": f"{place.url}/v1",
    }


_QUESTION = "ask Which colour? | red | blue"

_ALL = (
    Agent(
        "claude-acp",
        _claude,
        question=_QUESTION,
        in_ci=True,
        remark="starts one more process for each session, which survives if only the first process is killed; the "
        "server ends it.",
    ),
    Agent(
        "codex",
        _codex,
        asking_mode="read-only",
        asks_at_once=True,
        runs='tool exec_command {"cmd": "{command}", "sandbox_permissions": "require_escalated", '
        '"justification": "scripted"}',
        question='tool request_user_input {"questions": [{"header": "Colour", "id": "colour", "question": '
        '"Which colour?", "options": [{"label": "red", "description": "r"}, {"label": "blue", "description": "b"}]}]}',
        question_settings={"collaboration_mode": "plan"},
        in_ci=True,
        remark="if two processes start at the same time in a new home, one fails because both create its database; "
        "that turn continues in another process. Asks questions only with `collaboration_mode` set to `plan`. May not "
        "report all output of a command, especially at its start; its model does receive it.",
    ),
    Agent("vibe", _vibe, asking_mode="ask", in_ci=True),
    Agent("opencode", _opencode, remark="asks for permission only if its own settings say so."),
    Agent(
        "gemini",
        _gemini,
        remark="resumes a session only once, and not in the minute in which it was created: loading it leaves a second "
        "file with the session's id, and the next start deletes both. It also drops a message whose turn was "
        "cancelled. The transcript covers both cases.",
    ),
    Agent(
        "qwen",
        _qwen,
        asking_mode="default",
        remark="the process that Perdure starts only launches the real one. If the first is killed during a turn, the "
        "second has time to report the turn as cancelled. Nobody cancelled it, so Perdure treats it as interrupted.",
    ),
    Agent("copilot", _copilot, asks_at_once=True),
    Agent("fast-agent", _fast_agent, asks="never", remark="never asks for permission."),
    Agent(
        "hermes",
        _hermes,
        asks="before edits",
        asks_at_once=True,
        remark="if cancelled while it runs a command or asks, it answers with an error and keeps working; so Perdure "
        "ends its process, and the next turn is fresh. Asks before edits, but runs shell commands without asking.",
    ),
)

AGENTS: dict[str, Agent] = {agent.name: agent for agent in _ALL}
CI_AGENTS = tuple(agent.name for agent in _ALL if agent.in_ci)
