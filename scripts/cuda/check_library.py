#!/usr/bin/env python3
"""Holds libaerie_cuda.so to what the program expects before it calls it (src/kernels/device/cuda_library.h).

  scripts/cuda/check_library.py BUILD_FOLDER

It shows the two functions and nothing else, is named as its sources are, needs no library of CUDA's, and says what is
missing where there is no driver, or no GPU of a number. Exits with 1 and one line for each violation.
"""

import ctypes
import pathlib
import re
import subprocess
import sys

NAMES = ["aerie_cuda_build_id", "aerie_cuda_open"]
NO_DRIVER, NO_SUCH_DEVICE = 1, 2  # CudaOutcome


def written_by(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def has_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def refusal(library, index):
    """(outcome, why) of opening a GPU that is not there."""
    library.aerie_cuda_open.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    device, error = ctypes.c_void_p(), ctypes.create_string_buffer(512)
    outcome = library.aerie_cuda_open(index, ctypes.byref(device), error, len(error))
    return outcome, error.value.decode()


def check(build):
    file = build / "bin/libaerie_cuda.so"
    shown = sorted(line.split()[-1] for line in written_by("nm", "-D", "--defined-only", str(file)).splitlines())
    if shown != NAMES:
        yield f"it shows {', '.join(shown)} instead of {', '.join(NAMES)}"
    for needed in re.findall(r"NEEDED.*\[(lib(?:cu|nv)[^]]*)\]", written_by("readelf", "-d", str(file))):
        yield f"it needs {needed}"
    library = ctypes.CDLL(str(file))
    library.aerie_cuda_build_id.restype = ctypes.c_char_p
    name = library.aerie_cuda_build_id().decode()
    if f'"{name}"' not in (build / "generated/device_build_id.h").read_text(encoding="utf-8"):
        yield f"its name {name} is not that of the sources"
    outcome, why = refusal(library, 10_000)
    expected = (NO_SUCH_DEVICE, "counted from 0") if has_driver() else (NO_DRIVER, "there is no NVIDIA driver")
    # A driver without a GPU is a third case.
    if (outcome != expected[0] or expected[1] not in why) and "finds no GPU" not in why:
        yield f"of GPU 10,000 it says {outcome}, '{why}'"


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    problems = list(check(pathlib.Path(sys.argv[1]).resolve()))
    for problem in problems:
        print(f"libaerie_cuda.so: {problem}")
    print(f"check_library: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
