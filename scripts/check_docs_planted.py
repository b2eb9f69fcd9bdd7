"""What the self-test of check_docs.py plants: a small project, and mistakes in its pages."""

import pathlib
import tempfile

PAGES = {
    "README.md": """# A page

Reads `src/model/good.cc`, `good.h`, `model/good.{h,cc}`, `simd_<isa>.h` and [the other](docs/other.md#a-b-c); `Good::step`, `kMax`,
`good_name()`, `…_name`, `--depth` and `num_kept` are there, FOLDER and `config.json` are nobody's.

    build/release/bin/aerie run -m MODEL --speculate lookup:num_kept=3 --depth 2 | tee log  # --not-a-flag
    AERIE_X=1 tools/run.py --fast && build/release/bin/test_good --gtest_filter='Good*:Other.Step'
    cmake -DAERIE_FAST=ON && ninja -C build/release aerie

@@
""",
    "docs/other.md": "# Other\n\n## A `b`, c\n\n- An item:\n\n      aerie bench spec --sample 3\n",
    "src/model/good.cc": "TEST(Good, Works) {}\nTEST_P(Other, Step) {}\n",
    "src/model/good.h": "class Good { void step(); int kMax; int num_kept, good_name; };  // AERIE_FAST\n",
    "src/model/simd_avx2.h": "",
    "src/model/CMakeLists.txt": "aerie_test(good SOURCES good.cc)\nadd_executable(aerie good.cc)\n",
    "tools/run.py": 'add_argument("--fast")\n',
}
HELP = {
    (): "Subcommands:\n  run    Runs\n  bench  Measures\n",
    ("run",): "  -m,--model TEXT\n  --speculate TEXT\n  --depth INT\n",
    ("bench",): "Subcommands:\n  spec   Measures\n",
    ("bench", "spec"): "  --sample INT\n",
}
MISTAKES = {
    "`src/model/gone.cc`": "src/model/gone.cc is not there",
    "In docs/gone.md it is said.": "docs/gone.md is not there",
    "`gone.h`": "gone.h is not there",
    "`model/good.{h,hh}`": "model/good.hh is not there",
    "`src/gone/*.cc`": "src/gone/*.cc is not there",
    "`build/release/bin/test_gone`": "nothing builds build/release/bin/test_gone",
    "[this](docs/gone.md)": "leads nowhere",
    "[this](docs/other.md#gone)": "no heading makes the anchor",
    "[this](#gone)": "no heading makes the anchor",
    "`Good::leap`": "Good::leap is not in the code",
    "`kMost`": "kMost is not in the code",
    "`gone_name`": "gone_name is not in the code",
    "`gone()`": "gone() is not in the code",
    "`…_gone`": "…_gone is not in the code",
    "`--gone`": "no command has --gone",
    "`aerie run --sample 3`": "aerie run has no --sample",
    "`aerie run -q`": "aerie run has no -q",
    "`aerie bench gone`": "there is no command aerie bench gone",
    "    aerie run -m MODEL \\\n        --gone 3": "aerie run has no --gone",
    "```\naerie gone\n```": "there is no command aerie gone",
    "`aerie-train --gone`": "no command has --gone",
    "`tools/run.py --gone`": "tools/run.py has no --gone",
    "`lookup:gone_kept=3`": "the setting gone_kept is not in the code",
    "    test_good --gtest_filter='Good*:Gone*'": "no test is meant by Gone*",
    "    ninja -C build/release gone": "there is no target gone",
    "    cmake -DAERIE_GONE=ON": "no build has AERIE_GONE",
    "```cpp\nGoodName x = AERIE_FAST(Good);\n```": "GoodName is not in the code",
}


def find_all(check, helps_of):
    """Each mistake is found by `check`, and nothing where there is none."""
    helps = helps_of(HELP.get, set())
    for mistake, expected in [("", None), *MISTAKES.items()]:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in PAGES.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text.replace("@@", mistake), encoding="utf-8")
            problems = check(root, helps)
            found = [problem for problem in problems if expected and expected in problem]
            assert problems == found and bool(found) == bool(expected), (mistake, problems)
    print(f"check_docs: the self-test found all {len(MISTAKES)} planted mistakes")
