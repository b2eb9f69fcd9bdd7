#!/usr/bin/env python3
"""Holds the machine code of libaerie_cuda.so to what keeps a GPU's memory busy.

  scripts/cuda/check_sass.py LIBRARY [--arch sm_90] [--cuobjdump FILE] [--json FILE] [--all]
  scripts/cuda/check_sass.py --self-test

Of every kernel that TABLE names: nothing lies in local memory (spilled registers), there are not more registers than
its blocks need to share a processor, and where it multiplies there are products of tensor cores and loads of 16 bytes.
Of products also how many instructions a warp issues for 1,024 weights in its hottest loop, the innermost one with most
tensor-core products: a processor has so many slots for them while its share of the weights comes from memory
(docs/cuda.md).

Prints a table, with --all of kernels that nothing is asked of, too. Exits with 1 and one line for each violation, also
where a row of TABLE finds no kernel. cuobjdump comes with scripts/cuda/fetch_nvcc.sh (build/nvcc) or a toolkit.
"""

import argparse
import dataclasses
import json
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FETCHED = ROOT / "build/nvcc/nvidia/cu13/bin/cuobjdump"
# MatrixKind of src/kernels/device/device.h.
KINDS = ("kBf16", "kBf16x2", "kQ4", "kQ4K", "kQ8", "kQ6K")


def products_of_1024(kind, panels, tiles):
    """Tensor-core products, each of 16 x 16 weights and 8 rows, that 1,024 weights take in the loop over k."""
    products = 4 * tiles
    if kind == "kBf16x2":
        products *= 2  # of both parts of a weight
    elif kind == "kQ4K":
        products += 4 * tiles / panels  # the sums of activations, once for all panels
    return products


@dataclasses.dataclass
class Row:
    """What is asked of the kernels whose names match; the first row that does counts."""

    name: str
    registers: int = 255
    multiplies: bool = True
    # Instructions that may use local memory outside of the hottest loop: there they cost nothing worth naming.
    spills: int = 0
    # Of products: the limits of issue slots for 1,024 weights, by the kind of weights, the panels of a block and the
    # tiles of 8 rows; by architecture.
    slots: dict = dataclasses.field(default_factory=dict)


TABLE = [
    Row(r"product_kernel<(?P<kind>\w+), (?P<panels>\d), (?P<tiles>\d)>"),
    Row(r"tile_product_kernel<(?P<kind>\w+)>"),
    Row(r"attention_kernel<.*>", spills=16),
    Row(r".*", multiplies=False),
]

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


def shape_of(match):
    """(kind, panels, tiles) of a product of weights; None of other kernels."""
    groups = match.groupdict()
    if "kind" not in groups:
        return None
    return groups["kind"], int(groups.get("panels") or 2), int(groups.get("tiles") or 8)


def slots_of(kernel, shape):
    """Instructions for 1,024 weights."""
    loop = kernel.hot_loop()
    if loop is None or shape is None:
        return None
    instructions, products, _ = loop
    return instructions * products_of_1024(*shape) / products


def check(kernels, arch, table, problems):
    """The rows of the table that is printed."""
    rows, met = [], set()
    for kernel in sorted(kernels, key=lambda one: one.name):
        name = short(kernel.name)
        row, match = next(((row, match) for row in table if (match := re.fullmatch(row.name, name))), (None, None))
        if row is None:
            continue
        met.add(row.name)
        say = f"{arch}: {name}: "
        loop = kernel.hot_loop()
        in_loop = loop[2] if loop else 0
        if kernel.spills() > row.spills or in_loop:
            problems.append(f"{say}{kernel.spills()} instructions, {in_loop} of the hottest loop, use {kernel.stack} "
                            "bytes of local memory: registers are spilled, an array is indexed by what is not "
                            "constant, or arguments are not __grid_constant__")
        if kernel.registers > row.registers:
            problems.append(f"{say}{kernel.registers} registers; at most {row.registers}")
        if row.multiplies and kernel.products() == 0:
            problems.append(f"{say}no product is a tensor core's")
        if row.multiplies and kernel.wide_loads() == 0:
            problems.append(f"{say}nothing is loaded 16 bytes at a time")
        shape = shape_of(match)
        slots = slots_of(kernel, shape)
        limit = row.slots.get(arch, {}).get(shape) if shape else None
        if shape and slots is None:
            problems.append(f"{say}there is no loop with tensor cores' products")
        if limit is not None and slots is not None and slots > limit:
            problems.append(f"{say}{slots:.0f} issue slots for 1,024 weights; at most {limit}")
        rows.append({
            "kernel": name, "arch": arch, "registers": kernel.registers, "registers_limit": row.registers,
            "spills": kernel.spills(), "stack": kernel.stack, "wide_loads": kernel.wide_loads(),
            "products": kernel.products(), "loop": loop, "slots": slots, "slots_limit": limit,
            "asked": row.multiplies,
        })
    problems += [f"{arch}: no kernel is named {row.name}" for row in table if row.name not in met]
    return rows


def print_table(rows):
    form = "{:<52} {:>6} {:>9} {:>6} {:>6} {:>5} {:>22} {:>10}"
    print(form.format("kernel", "arch", "registers", "spills", "wide", "mma", "loop: all, mma, spills", "slots"))
    for row in rows:
        loop = "" if row["loop"] is None else "{}, {}, {}".format(*row["loop"])
        slots = "" if row["slots"] is None else f"{row['slots']:.0f}"
        if row["slots_limit"] is not None:
            slots += f" ≤ {row['slots_limit']}"
        print(form.format(row["kernel"], row["arch"], f"{row['registers']} ≤ {row['registers_limit']}", row["spills"],
                          row["wide_loads"], row["products"], loop, slots))


def disassembler(named):
    for program in (named, shutil.which("cuobjdump"), "/usr/local/cuda/bin/cuobjdump", FETCHED):
        if program and pathlib.Path(program).is_file():
            return str(program)
    raise SystemExit("check_sass: there is no cuobjdump: scripts/cuda/fetch_nvcc.sh brings it")


def read_library(program, library, arch):
    def dump(*options):
        done = subprocess.run([program, "-arch", arch, *options, library], capture_output=True, text=True, check=False)
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

    def problems_of(kernel, name="k", pattern="k", **row):
        problems = []
        check([dataclasses.replace(kernel, name=name)], "sm_90", [Row(pattern, 64, **row)], problems)
        return problems

    loop = ["MOV R1, R2", "LDG.E.128.CONSTANT R4, desc[UR4][R2.64]", "HMMA.16816.F32.BF16 R4, R8, R12, R4",
            "IADD3 R1, R1, 0x1, RZ", "@P0 BRA 0x10", "EXIT", "BRA 0x60"]
    good = kernel_of(*loop)
    assert good.hot_loop() == (4, 1, 0), good.hot_loop()
    assert slots_of(good, ("kQ4", 2, 1)) == 16 and slots_of(good, ("kBf16x2", 2, 1)) == 32
    assert slots_of(good, ("kQ4K", 2, 1)) == 24 and slots_of(good, None) is None
    assert problems_of(good) == []
    outer = kernel_of(*loop[:5], "@!P1 BRA 0x0", "EXIT")
    assert outer.hot_loop() == (4, 1, 0), outer.hot_loop()
    behind = kernel_of(*loop[:5], "EXIT", "FADD R1, R2, R3", "BRA 0x10")
    assert behind.hot_loop() == (4, 1, 0), behind.hot_loop()
    before = kernel_of("STL [R1], R2", *loop[1:])
    assert "local memory" in problems_of(before)[0] and problems_of(before, spills=1) == []
    assert "1 of the hottest loop" in problems_of(kernel_of(*loop[:3], "LDL R1, [R2]", *loop[4:]), spills=1)[0]
    assert "16 bytes" in problems_of(kernel_of(loop[0], "LDG.E.64 R4, [R2]", *loop[2:]))[0]
    assert "tensor core" in problems_of(kernel_of("LDGSTS.E.BYPASS.128 [R1], [R2.64]", "EXIT"))[0]
    assert problems_of(kernel_of("FADD R1, R2, R3", "EXIT"), multiplies=False) == []
    name, shape = "p<(d::MatrixKind)2, 4, 1>", r"p<(?P<kind>\w+), (?P<panels>\d), (?P<tiles>\d)>"
    assert "no loop" in problems_of(kernel_of(*loop[1:3], "EXIT"), name, shape)[0]
    assert problems_of(good, name, shape, slots={"sm_90": {("kQ4", 4, 1): 16}}) == []
    assert "16 issue slots" in problems_of(good, name, shape, slots={"sm_90": {("kQ4", 4, 1): 15}})[0]
    usage = {"k": good}
    parse_usage(" Function k:\n  REG:90 STACK:0 SHARED:0 LOCAL:0 CONSTANT[0]:576 TEXTURE:0\n", usage)
    assert "90 registers; at most 64" in problems_of(good)[0]
    assert "no kernel" in (lambda p: (check([], "sm_90", [Row("k", 1)], p), p)[1])([])[0]
    assert short("void a::b::k<(a::MatrixKind)2, 4>(a::Args, int (*)(int))") == "k<kQ4, 4>"
    print("check_sass: self-test passed")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", nargs="?")
    parser.add_argument("--arch", action="append", help="sm_90 and the like; more than once for several")
    parser.add_argument("--cuobjdump")
    parser.add_argument("--json", help="write the table's figures to this file, too")
    parser.add_argument("--all", action="store_true", help="also print kernels that nothing is asked of")
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        return self_test()
    if not options.library:
        parser.error("which library?")
    program = disassembler(options.cuobjdump)
    rows, problems = [], []
    for arch in options.arch or ["sm_90"]:
        rows += check(read_library(program, options.library, arch), arch, TABLE, problems)
    print_table([row for row in rows if options.all or row["asked"]])
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print(*problems, sep="\n", end="\n" if problems else "")
    print(f"check_sass: {len(rows)} kernels, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
