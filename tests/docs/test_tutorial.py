"""The commands of the tutorial and of the trainers' pages run as they stand there, and print what the pages show."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "tutorial.md"
TRAINERS = {page.stem: page.read_text("utf-8") for page in sorted((DOCS / "trainers").glob("*.md"))}
#: Gives the commands one after another in one process, as the console script does.
PROGRAM = """
import json, runpy, sys
from calibudget.cli.entry import entry
for words in json.loads(sys.argv[1]):
    print(*words, file=sys.stderr, flush=True)
    sys.argv = words
    try:
        entry() if words[0] == "calibudget" else runpy.run_path(words[1], run_name="__main__")
    except SystemExit as leave:
        if leave.code:
            raise
"""


def exporting(page: str) -> tuple[list[str], list[str]]:
    """The words of a page's export, and the lines that it shows of it."""
    (command, shown) = re.findall(r"^```sh\n(calibudget export .*?)\n```\n\n```\n(.*?)^```$", page, re.DOTALL | re.M)[0]
    return shlex.split(command), shown.splitlines()


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The folder in which every command was run, and the lines that were printed."""
    folder = tmp_path_factory.mktemp("tutorial")
    blocks = re.findall(r"^```(sh|python)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "NO_COLOR": "1"}
    commands: list[list[str]] = []
    for kind, text in blocks:
        if kind == "python":
            (folder / "make_data.py").write_text(text, encoding="utf-8")
        else:
            commands += map(shlex.split, text.splitlines())
    commands = [words for words in commands if words[0] in ("calibudget", "python")]  # the set-up is the reader's own
    assert len(commands) == 9
    for page in TRAINERS.values():
        words, _ = exporting(page)
        commands.append(words[: words.index("--check")] if "--check" in words else words)
    program = [sys.executable, "-c", PROGRAM, json.dumps(commands)]
    done = subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.model
def test_every_command_gives_what_its_page_shows(walked: tuple[Path, list[str]]) -> None:
    folder, printed = walked
    shown = dict(
        re.findall(r"^│ (chat|parity|sums) .*│ +(\d+) │ +\d+ - +\d+ │$", PAGE.read_text("utf-8"), re.MULTILINE)
    )
    rows = json.loads((folder / "runs" / "first" / "allocation.json").read_bytes())["sources"]
    quotas = {label: row["quota"] for label, row in rows.items()}
    assert {label: str(quota) for label, quota in quotas.items()} == shown
    for name, page in TRAINERS.items():
        _, lines = exporting(page)
        assert not {line for line in lines if not line.startswith("checked ")} - set(printed), name
        listed = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
        files = {re.sub(r"^\d+\.", "NNN.", path.name) for path in (folder / f"for-{name}").iterdir()}
        assert files - {"README.md", "export.json", "model"} == set(listed), name


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", [name for name, page in TRAINERS.items() if "```sh\ncd " in page])
def test_the_trainer_itself_prints_what_its_page_shows(name: str, request: pytest.FixtureRequest) -> None:
    page = TRAINERS[name]
    ((command, shown),) = re.findall(r"^```sh\n(cd .*?)\n```\n\n```\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    trainers = os.environ.get("CALIBUDGET_TRAINERS")
    environment = re.findall(r"trainers/([\w-]+)/bin", command)[0]
    if trainers is None or not (Path(trainers) / environment).exists():
        pytest.skip(f"CALIBUDGET_TRAINERS names no folder that tools/trainer_environments.sh made, with {environment}")
    folder, _ = request.getfixturevalue("walked")
    if not (folder / "trainers").exists():
        (folder / "trainers").symlink_to(Path(trainers).absolute())
    words, lines = exporting(page)
    if "--check" in words:
        words[words.index("--output-dir") + 1] = f"checked-{name}"
        checked = printed_by([sys.executable, "-m", *words], folder)
        assert lines[-1] in checked.splitlines()
    found = printed_by(["bash", "-c", command], folder)
    if losses(shown):
        assert losses(found)[0] == pytest.approx(losses(shown)[0], abs=0.02)  # their rounding, in other precisions
    else:
        assert shown in found


def printed_by(command: list[str], folder: Path) -> str:
    environment = os.environ | {
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "NO_COLOR": "1",
        "AXOLOTL_DO_NOT_TRACK": "1",
    }
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def losses(text: str) -> list[float]:
    """The losses that a trainer printed, in its own way."""
    return [float(found) for found in re.findall(r"\bloss['\":=\s]{1,5}(\d+\.\d+)", text, re.IGNORECASE)]
