"""Laws are tried on the same examples everywhere (scripts/fuzz.sh: fresh ones); published rows asked once."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from mc2perf.validating import Validation

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("fuzz", derandomize=False, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


@pytest.fixture(scope="session")
def everything() -> Validation:
    """Every shipped row, asked and scored."""
    from mc2perf.validating import validate

    return validate()


@pytest.fixture
def put(tmp_path: Path) -> Any:
    """Write a file under a name that says nothing, and read it."""

    def write(content: str | bytes | dict[str, Any]) -> Path:
        file = tmp_path / "attachment"
        text = json.dumps(content) if isinstance(content, dict) else content
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    return write
