"""Every notebook runs to its end; its own assertions hold, and it draws what it says."""

import base64
import pathlib

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples/python").glob("*.ipynb"))
MODEL = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
# Pictures, and how often a word is printed at least.
WANTED = {
    "compare_drafters": (1, {"same ids": 6}),
    "custom_drafter": (1, {"same ids": 8}),
    "structured_output": (0, {"inhabitants": 2, "rounds": 2}),
}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path, images):
    if not MODEL.exists():
        pytest.skip(f"{MODEL} is missing: scripts/fetch_model.sh gets it")
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in cells), "outputs stay out of the repository"
    long = [line for cell in cells for line in cell.source.splitlines() if len(line) > 120]
    assert not long

    # What raises in a cell raises here, with the cell.
    resources = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=resources).execute()

    outputs = [output for cell in cells for output in cell.outputs]
    printed = "".join(output.text for output in outputs if output.output_type == "stream")
    drawn = [output.data["image/png"] for output in outputs if "image/png" in output.get("data", {})]
    for number, picture in enumerate(drawn):
        (images / f"{path.stem}-{number}.png").write_bytes(base64.b64decode(picture))
    count, words = WANTED[path.stem]
    assert len(drawn) == count
    for word, least in words.items():
        assert printed.count(word) >= least, printed


def test_none_is_missing():
    assert {path.stem for path in NOTEBOOKS} == set(WANTED)
