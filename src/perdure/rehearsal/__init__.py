"""The rehearsal agent: a coding agent with no model, which does what the lines of a message say.

Above: `perdure rehearse`, any client of the protocols it speaks, tests and benchmarks. Below: a dialect.
It imports nothing of the server, so it is there within a tenth of a second, and it needs no key and no network.
"""

import os
import sys
from collections.abc import Sequence

_HELP = """\
usage: perdure rehearse --acp               (the same as: python -m perdure.rehearsal --acp)
       perdure rehearse --claude FLAGS ...

A coding agent with no model, for demonstrations, tests and measurements. With --acp it speaks the Agent Client
Protocol, version 1, on stdin and stdout. With --claude it stands in for the `claude` command line: it takes its
flags (-p, --output-format, --input-format, --session-id, --resume ...) and speaks its stream-json and its control
protocol. It does what the lines of the newest message tell it. Lines that begin with no verb are remarks. A message
without verbs gets a friendly answer. It can be interrupted in the middle of any verb.

{table}

It keeps its sessions in $PERDURE_REHEARSAL_DIR, or else in ~/.local/state/perdure/rehearsal. With
$PERDURE_REHEARSAL_CONTEXT set to a number of tokens, a session that would hold more fails as over-long.

examples:
  printf '%s\\n' '{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":1}}}}' \\
    | perdure rehearse --acp
        says who it is, and ends when its input does

  perdure rehearse --claude -p "say hello" < /dev/null
        says hello

  [agents.rehearsal]
  driver = "acp"
  command = ["perdure", "rehearse", "--acp"]
        in perdure.toml (or as the command of any other ACP client); then send it a message like
        "plan read; write", "stream 50 20", "permit Deploy", each on its own line
"""


def main(argv: Sequence[str]) -> int:
    """Runs the agent on stdin and stdout, or prints help. The answer is an exit code."""
    if not argv or argv[0] in ("-h", "--help") or list(argv[1:]) in (["-h"], ["--help"]):
        from perdure.rehearsal.verbs import table

        sys.stdout.write(_HELP.format(table=table()))
        return 0
    if argv[0] == "--claude":
        from perdure.rehearsal.claude import main as claude

        return claude(argv[1:])
    if list(argv) != ["--acp"]:
        sys.stderr.write(f"perdure rehearse: {' '.join(argv)} is not understood; try --help\n")
        return 2
    # Imported here so that help needs none of it.
    from perdure.rehearsal.acp import AcpAgent
    from perdure.rehearsal.memory import Memory, default_folder
    from perdure.rehearsal.wire import Wire

    try:
        AcpAgent(Wire(0, 1), Memory(default_folder())).serve()
    except BrokenPipeError:
        # The client is gone. Not a return: the thread that waits for input would hold up an orderly exit.
        os._exit(0)
    except KeyboardInterrupt:
        os._exit(130)
    return 0
