"""Scenario g: single parts (keeper, store and driver), each with its own script.

Above: bench.py. Below: the scripts, each in its own process. Their output is shown unchanged.
"""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TIMEOUT_S = 120


def scripts(quick: bool) -> list[list[str]]:
    return [
        ["keeper_throughput.py", "200000" if quick else "1000000"],
        ["store_throughput.py", "--seconds", "0.5" if quick else "2"],
        ["parse.py", "--lines", "20000" if quick else "200000"],
    ]


def parts(quick: bool) -> str:
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent / "src")}
    said: list[str] = []
    for script, *arguments in scripts(quick):
        argv = [sys.executable, str(HERE / script), *arguments]
        done = subprocess.run(argv, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=TIMEOUT_S)
        said.append(f"g {script.removesuffix('.py')}\n{done.stdout.rstrip()}")
    return "\n\n".join(said)
