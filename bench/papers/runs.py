"""Commands whose results are kept: what was there already is not done again."""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Failed(Exception):
    pass


class Runs:
    """`aerie` of one model, in a folder of results. Each result has the command that made it beside it (NAME.command),
    and another command makes it anew."""

    def __init__(self, aerie, model, folder):
        self.aerie, self.model = str(aerie), str(model)
        self.folder = pathlib.Path(folder)

    def train(self, method, name, flags):
        """The folder of what `aerie train METHOD` learned. It resumes by itself, and refuses other flags in its folder."""
        folder = self.folder / name
        self._once(folder / "final/config.json", folder.parent / f"{folder.name}.command",
                   ["train", method, "-m", self.model, "--out", str(folder), *map(str, flags)])
        return folder / "final"

    def spec(self, name, dataset, methods, flags):
        """The figures of `aerie bench spec`."""
        figures = self.folder / f"{name}.json"
        words = ["bench", "spec", "-m", self.model, "--json", str(figures), "--dataset", str(dataset),
                 *map(str, flags)]
        for method in methods:
            words += ["--method", method]
        self._once(figures, figures.with_suffix(".command"), words)
        return json.loads(figures.read_text(encoding="utf-8"))

    def script(self, name, words):
        """What a script prints."""
        printed = self.folder / f"{name}.txt"
        self._once(printed, printed.with_suffix(".command"), words, program=sys.executable, keep=printed)
        return printed.read_text(encoding="utf-8")

    def _once(self, result, command_file, words, program=None, keep=None):
        command = "\n".join(words) + "\n"
        if result.exists() and command_file.exists() and command_file.read_text(encoding="utf-8") == command:
            return
        command_file.parent.mkdir(parents=True, exist_ok=True)
        command_file.unlink(missing_ok=True)
        print(f"{result.relative_to(self.folder)} ...", file=sys.stderr, flush=True)
        done = subprocess.run([program or self.aerie, *words], check=False, encoding="utf-8",
                              stdout=subprocess.PIPE if keep else subprocess.DEVNULL, stderr=subprocess.PIPE)
        if done.returncode != 0:
            raise Failed(f"{' '.join([program or self.aerie, *words])}: status {done.returncode}:\n{done.stderr[-2000:]}")
        if keep:
            keep.write_text(done.stdout, encoding="utf-8")
        command_file.write_text(command, encoding="utf-8")
