"""Laws are tried on the same examples everywhere (scripts/fuzz.sh: fresh ones); published rows asked once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

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
