"""The rehearsal agent: a coding agent without a model, which follows the lines of a message as a script.

Above: `perdure rehearse`, any client of the protocols it speaks, tests and benchmarks. Below: a dialect (acp.py or
claude.py). It imports nothing of the server, so it starts within a tenth of a second. It needs no API key and no
network.
"""

import os
import sys
from collections.abc import Sequence

_HELP = """\
usage: perdure rehearse --acp               (the same as: python -m perdure.rehearsal --acp)
       perdure rehearse --claude FLAGS ...

A coding agent without a model, for demonstrations, tests and benchmarks. With --acp it speaks the Agent Client
Protocol, version 1, on stdin and stdout. With --claude it replaces the `claude` command: it accepts the same flags
(-p, --output-format, --input-format, --session-id, --resume ...) and speaks stream-json and the control protocol.

It follows the lines of the newest message as a script. A line that doesn't start with a verb is a comment. A message
without verbs gets a greeting. You can interrupt it in the middle of any verb.

{table}

It stores its sessions in $PERDURE_REHEARSAL_DIR, by default ~/.local/state/perdure/rehearsal. To simulate a limited
context, set $PERDURE_REHEARSAL_CONTEXT to a number of tokens: a turn that would exceed it fails as too long.

examples:
  printf '%s\\n' '{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":1}}}}' \\
    | perdure rehearse --acp
        prints its capabilities, and exits at the end of its input

  perdure rehearse --claude -p "say hello" < /dev/null
        prints hello

  [agents.rehearsal]
  driver = "acp"
  command = ["perdure", "rehearse", "--acp"]
        in perdure.toml (or as the command of any other ACP client). Then send it a message with lines such as
        "plan read; write", "stream 50 20" or "permit Deploy"
"""


def main(argv: Sequence[str]) -> int:
    """Run the agent on stdin and stdout, or print help. Returns the exit code."""
    if not argv or argv[0] in ("-h", "--help") or list(argv[1:]) in (["-h"], ["--help"]):
        from perdure.rehearsal.verbs import table

        sys.stdout.write(_HELP.format(table=table()))
        return 0
    if argv[0] == "--claude":
        from perdure.rehearsal.claude import main as claude

        return claude(argv[1:])
    if list(argv) != ["--acp"]:
        sys.stderr.write(f"perdure rehearse: unknown arguments: {' '.join(argv)}. Try --help.\n")
        return 2
    # Imported here so that help doesn't need them.
    from perdure.rehearsal.acp import AcpAgent
    from perdure.rehearsal.memory import Memory, default_folder
    from perdure.rehearsal.wire import Wire

    try:
        AcpAgent(Wire(0, 1), Memory(default_folder())).serve()
    except BrokenPipeError:
        # The client is gone. Don't return: a normal exit would wait for the thread that reads stdin.
        os._exit(0)
    except KeyboardInterrupt:
        os._exit(130)
    return 0
