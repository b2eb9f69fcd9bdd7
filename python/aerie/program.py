"""The console script `aerie`: the program that the wheel brings along."""

from __future__ import annotations

import os
import pathlib
import sys

PROGRAM = pathlib.Path(__file__).parent / "bin" / "aerie"


def main() -> None:
    """Becomes the program, with the same arguments."""
    os.execv(PROGRAM, [str(PROGRAM), *sys.argv[1:]])
