"""The known agents: how to start, install and sign in to each, and the mode in which it asks before it acts.

Above: the agents, which offer the installed ones; `perdure agents`, which adds others. Below: nothing. This is static
data: nothing is fetched at run time. Commands with `npx` and `uvx` pin exact versions, to run the same code tomorrow as
today. The packages are from the protocol's public registry.
"""

from typing import Any

from msgspec import Struct


class Entry(Struct, frozen=True, kw_only=True):
    """One agent. Perdure never runs it before the user installs or adds it."""

    name: str
    title: str
    homepage: str
    command: tuple[str, ...]
    """The command if the user has added it and it is not installed: `npx` or `uvx`, which download it."""
    installed: tuple[str, ...] = ()
    """The command if its program is installed; empty if the program's name is too common to identify it."""
    driver: str = "acp"
    fallbacks: tuple[tuple[str, ...], ...] = ()
    env: dict[str, str] = {}
    mode: str | None = None
    """The mode in which it asks before it acts, if that is not its initial mode."""
    install: str = ""
    login: str = ""
    notes: str = ""
    tells_version: bool = False
    """Whether its program is known to support `--version`."""
    is_always_offered: bool = False
    """Whether it is offered even if it is missing, to show how to install it. It needs no section in perdure.toml."""

    def public(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "driver": self.driver,
            "command": list(self.command),
            "mode": self.mode,
            "install": self.install,
            "login": self.login,
            "homepage": self.homepage,
            "notes": self.notes,
        }


def _npx(name: str, title: str, package: str, version: str, homepage: str, *arguments: str, **more: Any) -> Entry:
    """An agent on npm. `program` is the program to look for on the machine, if any."""
    program = more.pop("program", None)
    return Entry(
        name=name,
        title=title,
        homepage=homepage,
        command=("npx", "-y", f"{package}@{version}", *arguments),
        installed=(program, *arguments) if program else (),
        install=f"npm install -g {package}@{version}",
        **{"login": _sign_in(title, homepage), **more},
    )


def _uvx(name: str, title: str, package: str, version: str, homepage: str, *call: str, **more: Any) -> Entry:
    """An agent on PyPI. `call` is its program and arguments."""
    pinned = f"{package}=={version}"
    return Entry(
        name=name,
        title=title,
        homepage=homepage,
        command=("uvx", "--from", pinned, *call),
        installed=call,
        install=f"uv tool install '{pinned}'",
        **{"login": _sign_in(title, homepage), **more},
    )


def _program(name: str, title: str, homepage: str, *call: str, **more: Any) -> Entry:
    """An agent that is only available as a program, not as a package."""
    return Entry(
        name=name,
        title=title,
        homepage=homepage,
        command=call,
        installed=call,
        install=f"see {homepage}",
        **{"login": _sign_in(title, homepage), **more},
    )


def _sign_in(title: str, homepage: str) -> str:
    return f"sign in with {title}'s own program; see {homepage}"


CLAUDE = Entry(
    name="claude",
    title="Claude Code",
    homepage="https://code.claude.com",
    driver="claude",
    command=("claude",),
    installed=("claude",),
    # Where its installers put it. The PATH of a service often lacks these folders.
    fallbacks=(("~/.local/bin/claude",), ("~/.claude/local/claude",), ("~/.npm-global/bin/claude",)),
    install="npm install -g @anthropic-ai/claude-code",
    login="start `claude` in a terminal and enter /login",
    tells_version=True,
    is_always_offered=True,
)

_ENTRIES = (
    CLAUDE,
    # Tested by hand, in these versions.
    _npx(
        "claude-acp",
        "Claude Agent",
        "@agentclientprotocol/claude-agent-acp",
        "0.99.0",
        "https://github.com/agentclientprotocol/claude-agent-acp",
        program="claude-agent-acp",
        login="start `claude` in a terminal and enter /login, or set ANTHROPIC_API_KEY in env",
        notes="Claude Code over ACP; the agent `claude` runs it without ACP. Needs Node 22.",
    ),
    _npx(
        "codex",
        "Codex",
        "@agentclientprotocol/codex-acp",
        "2.6.0",
        "https://github.com/agentclientprotocol/codex-acp",
        program="codex-acp",
        mode="read-only",
        login="run `codex login`, or set OPENAI_API_KEY in env",
        notes="Starts in a mode that rarely asks; in `workspace-write` it asks outside its directory.",
    ),
    _npx(
        "opencode",
        "OpenCode",
        "opencode-ai",
        "1.18.33",
        "https://opencode.ai",
        "acp",
        program="opencode",
        login="run `opencode auth login`",
        notes='Asks only if its opencode.json says so: "permission": {"edit": "ask", "bash": "ask"}.',
        tells_version=True,
    ),
    _npx(
        "gemini",
        "Gemini CLI",
        "@google/gemini-cli",
        "0.61.0",
        "https://geminicli.com",
        "--acp",
        program="gemini",
        login="start `gemini` in a terminal and sign in, or set GEMINI_API_KEY in env",
        tells_version=True,
    ),
    _npx(
        "qwen",
        "Qwen Code",
        "@qwen-code/qwen-code",
        "0.24.4",
        "https://qwenlm.github.io/qwen-code-docs",
        "--acp",
        program="qwen",
        mode="default",
        login="start `qwen` in a terminal and enter /auth, or set OPENAI_API_KEY and OPENAI_BASE_URL in env",
        notes="Starts in a mode in which a model decides when to ask. Needs Node 22.",
        tells_version=True,
    ),
    _npx(
        "copilot",
        "GitHub Copilot CLI",
        "@github/copilot",
        "1.0.102",
        "https://github.com/features/copilot/cli",
        "--acp",
        program="copilot",
        env={"COPILOT_AUTO_UPDATE": "false"},
        login="start `copilot` in a terminal and enter /login",
        tells_version=True,
    ),
    _uvx(
        "vibe",
        "Mistral Vibe",
        "mistral-vibe",
        "3.0.2",
        "https://mistral.ai/products/vibe",
        "vibe-acp",
        mode="ask",
        login="run `vibe --setup`, or set MISTRAL_API_KEY in env",
        notes="Starts in a mode that edits without asking. Needs Python 3.12.",
    ),
    _uvx(
        "fast-agent",
        "fast-agent",
        "fast-agent-mcp",
        "0.10.46",
        "https://fast-agent.ai",
        "fast-agent-acp",
        "-x",
        login="set the provider's key in env, and add `--model NAME` to the command",
        notes="Never asks: it edits files and runs commands on its own. Use it where that can do no harm.",
    ),
    _uvx(
        "hermes",
        "Hermes Agent",
        "hermes-agent[acp]",
        "0.19.0",
        "https://hermes-agent.nousresearch.com",
        "hermes-acp",
        login="set up a provider with its own program (`hermes setup`)",
        notes="Asks before edits, but runs plain shell commands without asking.",
    ),
    # Untested: taken from the registry.
    _npx(
        "agoragentic",
        "Agoragentic",
        "agoragentic-mcp",
        "1.3.6",
        "https://agoragentic.com",
        "--acp",
        notes="A marketplace of paid services, not a coding agent.",
    ),
    _npx(
        "auggie",
        "Auggie CLI",
        "@augmentcode/auggie",
        "0.36.0",
        "https://www.augmentcode.com",
        "--acp",
        program="auggie",
        env={"AUGMENT_DISABLE_AUTO_UPDATE": "1"},
        login="run `auggie login`",
    ),
    _npx(
        "autohand",
        "Autohand Code",
        "@autohandai/autohand-acp",
        "0.2.1",
        "https://www.autohand.ai/cli",
        program="autohand-acp",
    ),
    _npx("cline", "Cline", "cline", "3.0.64", "https://cline.bot/cli", "--acp", program="cline"),
    _npx(
        "codebuddy",
        "CodeBuddy Code",
        "@tencent-ai/codebuddy-code",
        "2.156.0",
        "https://www.codebuddy.cn/cli",
        "--acp",
        program="codebuddy",
    ),
    _npx(
        "deepagents",
        "DeepAgents",
        "deepagents-acp",
        "0.1.20",
        "https://github.com/langchain-ai/deepagentsjs",
        program="deepagents-acp",
    ),
    _npx("dimcode", "DimCode", "dimcode", "0.5.11", "https://dimcode.dev", "acp", program="dimcode"),
    _npx("dirac", "Dirac", "dirac-cli", "0.5.15", "https://dirac.run", "--acp"),
    _npx(
        "droid",
        "Factory Droid",
        "droid",
        "0.225.2",
        "https://factory.ai/product/cli",
        "exec",
        "--output-format",
        "acp-daemon",
        program="droid",
        env={"DROID_DISABLE_AUTO_UPDATE": "true", "FACTORY_DROID_AUTO_UPDATE_ENABLED": "false"},
    ),
    _npx("glm", "GLM Agent", "glm-acp-agent", "1.12.0", "https://github.com/stefandevo/glm-acp-agent"),
    _npx("grok", "Grok Build", "@xai-official/grok", "1.0.41", "https://x.ai/cli", "agent", "stdio", program="grok"),
    _npx("kilo", "Kilo", "@kilocode/cli", "7.7.9", "https://kilo.ai", "acp", program="kilo"),
    _npx("minimax", "MiniMax Code", "@minimax-ai/code", "0.2.7", "https://agent.minimax.io", "acp"),
    _npx("nova", "Nova", "@compass-ai/nova", "1.1.46", "https://www.compassap.ai/portfolio/nova.html", "acp"),
    _npx("pi", "pi", "pi-acp", "0.0.33", "https://github.com/svkozak/pi-acp", program="pi-acp"),
    _npx("qoder", "Qoder CLI", "@qoder-ai/qodercli", "0.2.14", "https://qoder.com", "--acp", program="qodercli"),
    _npx("sigit", "siGit Code", "@smbcloud/sigit", "1.5.12", "https://github.com/getsigit/sigit", program="sigit"),
    _uvx(
        "minion", "Minion Code", "minion-code", "0.1.44", "https://github.com/femto/minion-code", "minion-code", "acp"
    ),
    _program("cursor", "Cursor", "https://cursor.com/docs/cli/acp", "cursor-agent", "acp"),
    _program("goose", "goose", "https://block.github.io/goose", "goose", "acp", tells_version=True),
    _program("junie", "Junie", "https://junie.jetbrains.com", "junie", "--acp=true"),
)

CATALOGUE: dict[str, Entry] = {entry.name: entry for entry in _ENTRIES}

TELL_THEIR_VERSION = {entry.installed[0] for entry in _ENTRIES if entry.tells_version}
