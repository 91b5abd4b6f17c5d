"""Two and three commands at once on one directory: one makes it, the others are refused in words."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.conftest import WORKS, chance_of, contents

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["run", "select", "score", "evaluate", "train"])
@pytest.mark.cases(1, 200, 5)
def test_of_commands_at_once_one_wins(zygote: Any, whole: Any, tmp_path: Path, name: str, part: Any) -> None:
    chance = chance_of(part)
    for case in range(part[1]):
        directory = WORKS[name].start(zygote, tmp_path / str(case))
        commands = [WORKS[name].command(directory)] * chance.choice([2, 2, 3])
        done = zygote.give(
            *commands, root=str(tmp_path), yields=chance.randrange(20_000), seed=chance.randrange(1 << 30)
        )
        codes = sorted(one["code"] for one in done)
        assert codes == [0] + [2] * (len(done) - 1), [one["text"][-300:] for one in done]
        assert all("Traceback" not in one["text"] and one["text"].strip() for one in done if one["code"]), done
        assert contents(directory) == whole(name)[0]
        shutil.rmtree(directory)
