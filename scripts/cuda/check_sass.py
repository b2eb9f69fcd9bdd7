#!/usr/bin/env python3
"""Holds the machine code of libaerie_cuda.so to what keeps a GPU's memory busy.

  scripts/cuda/check_sass.py LIBRARY [--arch sm_90] [--cuobjdump FILE] [--json FILE]
  scripts/cuda/check_sass.py LIBRARY --arch sm_80 --arch sm_90 --write-limits
  scripts/cuda/check_sass.py --self-test

What multiplies uses tensor cores and loads 16 bytes at a time. Products also have a limit of the instructions that a
warp issues for 1,024 weights in its hottest loop, the innermost one with most tensor-core products: a processor has so
many slots for them while its share of the weights comes from memory (docs/cuda.md). Nothing lies in local memory, where
spilled registers go, but for what sass_limits.json allows: it has the limits of every kernel, as --write-limits wrote
them of a library that was good enough. A kernel that it does not know may spill nothing.

Prints a table. Exits with 1 and one line for each violation, also where a kernel with limits is not in the library.
cuobjdump comes with scripts/cuda/fetch_nvcc.sh (build/nvcc) or a toolkit; limits are those of that nvcc.
"""

import argparse
import dataclasses
import json
import math
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FETCHED = ROOT / "build/nvcc/nvidia/cu13/bin/cuobjdump"
# MatrixKind of src/kernels/device/device.h.
KINDS = ("kBf16", "kBf16x2", "kQ4", "kQ4K", "kQ8", "kQ6K", "kFp4")


def products_of_1024(kind, panels, tiles):
    """Tensor-core products, each of 16 x 16 weights and 8 rows, that 1,024 weights take in the loop over k."""
    if tiles is None:  # of a group: a warp's 16 x 16 weights, and 64 rows or, of kinds without scales, 128
        return {"kBf16": 4, "kBf16x2": 8}.get(kind, 8)
    products = 4 * tiles
    if kind == "kBf16x2":
        products *= 2  # of both parts of a weight
    elif kind == "kQ4K":
        products += 4 * tiles / panels  # the sums of activations, once for all panels
    return products


# Kernels that multiply; of products of weights the kind, the panels of a block and its tiles of 8 rows
# (and the KiB of memory that a block may have, and the rows that come with its codes).
PRODUCT = re.compile(r"product_kernel<(?P<kind>\w+), (?P<panels>\d), (?P<tiles>\d), \d+, \d>"
                     r"|expert_product_kernel<(?P<of_expert>\w+), (?P<expert_tiles>\d), \d+>"
                     r"|tile_product_kernel<(?P<of_tile>\w+), (?P<of_warp>\d)>"
                     r"|group_product_kernel<(?P<of_group>\w+)>")
# These are empty where there are no groups of warps that multiply (226: kGroupsMemory of product.h).
GROUPS = re.compile(r"group_product_kernel<.*|(expert_)?product_kernel<.*, 226(, \d)?>")
WITH_GROUPS = ("sm_90",)
MULTIPLIES = re.compile(PRODUCT.pattern + r"|attention_kernel<.*>")
LIMITS = pathlib.Path(__file__).resolve().with_name("sass_limits.json")

FUNCTION = re.compile(r"^\s*Function : (\S+)")
INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:\{\s*)?([^;]*?)\s*;")
OPCODE = re.compile(r"^(?:@!?U?P\w+\s+)?([A-Z][\w.]*)")
BRANCH = re.compile(r"\bBRA(?:\.\w+)*\s+(?:!?U?P\w+,\s*)*`?\(?(?:0x)?([0-9a-f]+)\)?")
USAGE = re.compile(r"REG:(\d+)\b.*?\bSTACK:(\d+)\b.*?\bSHARED:(\d+)\b")


@dataclasses.dataclass
class Kernel:
    name: str
    code: list = dataclasses.field(default_factory=list)  # (address, instruction)
    registers: int = 0
    stack: int = 0

    def opcodes(self):
        return [opcode_of(text) for _, text in self.code]

    def spills(self):
        return sum(map(is_local, self.opcodes()))

    def wide_loads(self):
        return sum(opcode.startswith(("LDG.", "LDGSTS.")) and ".128" in opcode for opcode in self.opcodes())

    def products(self):
        return sum(map(is_product, self.opcodes()))

    def hot_loop(self):
        """(instructions, products, spills) of the innermost loop with most products; None if there is none."""
        loops = []
        for address, text in self.code:
            match = BRANCH.search(text)
            if match and int(match[1], 16) < address:
                inside = [opcode_of(t) for a, t in self.code if int(match[1], 16) <= a <= address]
                products = sum(map(is_product, inside))
                if products:
                    loops.append((int(match[1], 16), address, len(inside), products, sum(map(is_local, inside))))
        innermost = [a for a in loops
                     if not any(b != a and a[0] <= b[0] and b[1] <= a[1] for b in loops)]
        # Code that is seldom needed stands behind a loop, and jumps back into it from there: the shortest counts.
        return max((loop[2:] for loop in innermost), key=lambda loop: (loop[1], -loop[0]), default=None)


def opcode_of(text):
    match = OPCODE.match(text)
    return match[1] if match else ""


def is_local(opcode):
    return opcode.split(".")[0] in ("LDL", "STL")


def is_product(opcode):
    return opcode.startswith(("HMMA.", "IMMA.", "QMMA.", "HGMMA."))


def parse_code(text):
    """{mangled name: Kernel} of what `cuobjdump -sass` writes."""
    kernels, now = {}, None
    for line in text.splitlines():
        if match := FUNCTION.match(line):
            now = kernels.setdefault(match[1], Kernel(match[1]))
        elif now is not None and (match := INSTRUCTION.match(line)):
            now.code.append((int(match[1], 16), match[2]))
    return kernels


def parse_usage(text, kernels):
    """Adds what `cuobjdump -res-usage` writes."""
    name = None
    for line in text.splitlines():
        if match := re.match(r"^\s*Function (\S+?):?\s*$", line):
            name = match[1]
        elif name in kernels and (match := USAGE.search(line)):
            kernels[name].registers, kernels[name].stack = int(match[1]), int(match[2])
            name = None


def demangled(names):
    done = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True)
    return dict(zip(names, done.stdout.splitlines(), strict=True))


def short(name):
    """Without arguments and namespaces, and with the names of kinds."""
    name = re.sub(r"^void\s+", "", name).replace("(anonymous namespace)::", "")
    depth = 0
    for at, character in enumerate(name):
        depth += {"<": 1, ">": -1}.get(character, 0)
        if character == "(" and depth == 0:
            name = name[:at]
            break
    name = re.sub(r"\b\w+::", "", name)
    return re.sub(r"\(MatrixKind\)(\d)", lambda match: KINDS[int(match[1])], name)


def shape_of(name):
    """(kind, panels, tiles) of a product of weights; None of other kernels."""
    match = PRODUCT.fullmatch(name)
    if not match:
        return None
    if match["kind"]:
        return match["kind"], int(match["panels"]), int(match["tiles"])
    if match["of_expert"]:
        return match["of_expert"], 2, int(match["expert_tiles"])
    if match["of_group"]:
        return match["of_group"], 1, None
    return match["of_tile"], int(match["of_warp"]), 8


def slots_of(kernel, shape):
    """Instructions for 1,024 weights."""
    loop = kernel.hot_loop()
    if loop is None or shape is None:
        return None
    instructions, products, _ = loop
    return math.ceil(instructions * products_of_1024(*shape) / products)


def figures_of(kernel):
    """What has limits."""
    loop = kernel.hot_loop()
    return {"registers": kernel.registers, "spills": kernel.spills(), "spills_in_loop": loop[2] if loop else 0,
            "slots": slots_of(kernel, shape_of(short(kernel.name)))}


WORDS = {
    "registers": "registers", "spills": "instructions use local memory (registers are spilled, an array is indexed by "
    "what is not constant, or arguments are not __grid_constant__)",
    "spills_in_loop": "instructions of the hottest loop use local memory", "slots": "issue slots for 1,024 weights",
}
STRICT = {"registers": 255, "spills": 0, "spills_in_loop": 0, "slots": None}


def check(kernels, arch, limits, problems):
    """The rows of the table that is printed."""
    rows = []
    for kernel in sorted(kernels, key=lambda one: one.name):
        name, figures = short(kernel.name), figures_of(kernel)
        allowed = limits.get(arch, {}).get(name, STRICT)
        for what, figure in figures.items():
            if figure is not None and allowed[what] is not None and figure > allowed[what]:
                problems.append(f"{arch}: {name}: {figure} {WORDS[what]}; at most {allowed[what]}")
        if MULTIPLIES.fullmatch(name) and (arch in WITH_GROUPS or not GROUPS.fullmatch(name)):
            if kernel.products() == 0:
                problems.append(f"{arch}: {name}: no product is a tensor core's")
            if kernel.wide_loads() == 0:
                problems.append(f"{arch}: {name}: nothing is loaded 16 bytes at a time")
            if shape_of(name) and figures["slots"] is None:
                problems.append(f"{arch}: {name}: there is no loop with tensor cores' products")
        rows.append({"kernel": name, "arch": arch, **figures, "limits": allowed, "wide_loads": kernel.wide_loads(),
                     "products": kernel.products(), "loop": kernel.hot_loop()})
    missing = set(limits.get(arch, {})) - {row["kernel"] for row in rows}
    problems += [f"{arch}: {name}: is not in the library, and has limits" for name in sorted(missing)]
    return rows


def print_table(rows):
    form = "{:<38} {:>6} {:>9} {:>7} {:>7} {:>5} {:>5} {:>11} {:>11}"
    print(form.format("kernel", "arch", "registers", "spills", "in loop", "wide", "mma", "loop, mma", "slots"))
    for row in rows:
        loop = "" if row["loop"] is None else "{}, {}".format(*row["loop"])
        slots, limit = row["slots"], row["limits"]["slots"]
        print(form.format(row["kernel"], row["arch"], row["registers"], row["spills"], row["spills_in_loop"],
                          row["wide_loads"], row["products"], loop,
                          "" if slots is None else f"{slots}" if limit is None else f"{slots} ≤ {limit}"))


def write_limits(rows):
    limits = {}
    for row in rows:
        limits.setdefault(row["arch"], {})[row["kernel"]] = {what: row[what] for what in STRICT}
    lines = []
    for arch, kernels in limits.items():
        inside = ",\n".join(f"  {json.dumps(name)}: {json.dumps(figures)}" for name, figures in kernels.items())
        lines.append(f" {json.dumps(arch)}: {{\n{inside}\n }}")
    LIMITS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def disassembler(named):
    for program in (named, shutil.which("cuobjdump"), "/usr/local/cuda/bin/cuobjdump", FETCHED):
        if program and pathlib.Path(program).is_file():
            return str(program)
    raise SystemExit("check_sass: there is no cuobjdump: scripts/cuda/fetch_nvcc.sh brings it")


def read_library(program, library, arch):
    code = arch + "a" if arch in WITH_GROUPS else arch  # as cmake/Cuda.cmake has it

    def dump(*options):
        done = subprocess.run([program, "-arch", code, *options, library], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"check_sass: {program} cannot read {library}: {done.stderr.strip()}")
        return done.stdout

    kernels = parse_code(dump("-sass"))
    parse_usage(dump("-res-usage"), kernels)
    names = demangled(list(kernels))
    for kernel in kernels.values():
        kernel.name = names[kernel.name]
    if not kernels:
        raise SystemExit(f"check_sass: {library} has no code for {arch}")
    return list(kernels.values())


def self_test():
    def kernel_of(*lines):
        text = "\t\tFunction : k\n" + "\n".join(
            f"        /*{16 * i:04x}*/                   {line} ;      /* 0x0 */" for i, line in enumerate(lines))
        return parse_code(text)["k"]

    def problems_of(kernel, name="k", **limits):
        problems = []
        check([dataclasses.replace(kernel, name=name)], "sm_90", {"sm_90": {short(name): STRICT | limits}}, problems)
        return problems

    loop = ["MOV R1, R2", "LDG.E.128.CONSTANT R4, desc[UR4][R2.64]", "HMMA.16816.F32.BF16 R4, R8, R12, R4",
            "IADD3 R1, R1, 0x1, RZ", "@P0 BRA 0x10", "EXIT", "BRA 0x60"]
    good, name, attention = kernel_of(*loop), "void d::product_kernel<(d::MatrixKind)2, 4, 1, 227, 0>(A)", "attention_kernel<1>"
    assert good.hot_loop() == (4, 1, 0), good.hot_loop()
    assert shape_of(short(name)) == ("kQ4", 4, 1) and shape_of("tile_product_kernel<kQ8, 2>") == ("kQ8", 2, 8)
    assert shape_of("group_product_kernel<kQ4>") == ("kQ4", 1, None)
    assert slots_of(good, ("kQ4", 1, None)) == 32 and slots_of(good, ("kBf16", 1, None)) == 16
    assert slots_of(good, ("kQ4", 2, 1)) == 16 and slots_of(good, ("kBf16x2", 2, 1)) == 32
    assert slots_of(good, ("kQ4K", 2, 1)) == 24 and slots_of(good, None) is None
    assert problems_of(good) == problems_of(good, name) == problems_of(good, name, slots=16) == []
    assert "16 issue slots for 1,024 weights; at most 15" in problems_of(good, name, slots=15)[0]
    outer = kernel_of(*loop[:5], "@!P1 BRA 0x0", "EXIT")
    assert outer.hot_loop() == (4, 1, 0), outer.hot_loop()
    behind = kernel_of(*loop[:5], "EXIT", "FADD R1, R2, R3", "BRA 0x10")
    assert behind.hot_loop() == (4, 1, 0), behind.hot_loop()
    before = kernel_of("STL [R1], R2", *loop[1:])
    assert "1 instructions use local memory" in problems_of(before)[0] and problems_of(before, spills=1) == []
    assert "of the hottest loop" in problems_of(kernel_of(*loop[:3], "LDL R1, [R2]", *loop[4:]), spills=1)[0]
    assert "16 bytes" in problems_of(kernel_of(loop[0], "LDG.E.64 R4, [R2]", *loop[2:]), attention)[0]
    assert "tensor core" in problems_of(kernel_of("LDGSTS.E.BYPASS.128 [R1], [R2.64]", "EXIT"), attention)[0]
    assert problems_of(kernel_of("FADD R1, R2, R3", "EXIT")) == []
    for of_groups in ("group_product_kernel<kQ4>", "product_kernel<kQ4, 2, 2, 226, 0>",
                      "expert_product_kernel<kQ4, 2, 226>"):
        empty, problems = dataclasses.replace(kernel_of("EXIT"), name=of_groups), []
        check([empty], "sm_80", {}, problems)
        assert problems == [], problems
        check([empty], "sm_90", {}, problems)
        assert "tensor core" in problems[0]
    problems = []
    check([dataclasses.replace(kernel_of("EXIT"), name="product_kernel<kQ4, 2, 2, 227, 0>")], "sm_80", {}, problems)
    assert "tensor core" in problems[0]
    assert "no loop" in problems_of(kernel_of(*loop[1:3], "EXIT"), name)[0]
    usage = {"k": good}
    parse_usage(" Function k:\n  REG:90 STACK:0 SHARED:0 LOCAL:0 CONSTANT[0]:576 TEXTURE:0\n", usage)
    assert "90 registers; at most 64" in problems_of(good, registers=64)[0]
    problems = []
    check([], "sm_90", {"sm_90": {"k": STRICT}}, problems)
    assert "is not in the library" in problems[0]
    assert short("void a::b::k<(a::MatrixKind)2, 4>(a::Args, int (*)(int))") == "k<kQ4, 4>"
    print("check_sass: self-test passed")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", nargs="?")
    parser.add_argument("--arch", action="append", help="sm_90 and the like; more than once for several")
    parser.add_argument("--cuobjdump")
    parser.add_argument("--json", help="write the table's figures to this file, too")
    parser.add_argument("--write-limits", action="store_true", help="what the library has becomes what is allowed")
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        return self_test()
    if not options.library:
        parser.error("which library?")
    program = disassembler(options.cuobjdump)
    limits = json.loads(LIMITS.read_text(encoding="utf-8")) if LIMITS.is_file() and not options.write_limits else {}
    rows, problems = [], []
    for arch in options.arch or ["sm_90"]:
        rows += check(read_library(program, options.library, arch), arch, limits, problems)
    print_table(rows)
    if options.write_limits:
        write_limits(rows)
        print(f"check_sass: wrote {LIMITS}")
        return 0
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print(*problems, sep="\n", end="\n" if problems else "")
    print(f"check_sass: {len(rows)} kernels, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
