"""The built wheel: it works without the source tree, and carries the same profiles and models."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent

pytestmark = pytest.mark.skipif(
    not (importlib.util.find_spec("build") and importlib.util.find_spec("hatchling")),
    reason="needs the packages build and hatchling",
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the content of the wheel, which was built from a copy of the source tree."""
    copy = tmp_path_factory.mktemp("source")
    for name in ("mc2perf", "hardware_profiles"):
        shutil.copytree(SOURCE / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(SOURCE / name, copy / name)
    out = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(out), str(copy)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = out.glob("mc2perf-*-py3-none-any.whl")
    target = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    shutil.rmtree(copy)
    return target


def tool(installed: Path, tmp_path: Path, *args: str) -> str:
    """Run the installed tool from an unrelated folder; the editable one must not be what answers."""
    where = (
        "import mc2perf, sys; sys.stderr.write(mc2perf.__file__); from mc2perf.__main__ import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", where, *args],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == str(installed / "mc2perf" / "__init__.py")
    return done.stdout


def test_it_answers_as_the_source_tree_does(installed: Path, tmp_path: Path) -> None:
    out = tool(installed, tmp_path, "estimate", "mixtral-8x7b")
    here = [sys.executable, "-m", "mc2perf", "estimate", "mixtral-8x7b"]
    assert out == subprocess.run(here, capture_output=True, text=True, check=True, cwd=SOURCE).stdout
    assert out.startswith(("Best: ", "No gain: "))


@pytest.mark.parametrize(("words", "least"), [(("profiles", "list"), 14), (("models", "list"), 32)])
def test_it_lists_what_it_carries(
    words: tuple[str, ...], least: int, installed: Path, tmp_path: Path
) -> None:
    assert len(tool(installed, tmp_path, *words).splitlines()) >= least


@pytest.mark.parametrize(
    ("inside", "source"),
    [
        ("mc2perf/hardware_profiles", "hardware_profiles"),
        ("mc2perf/data", "mc2perf/data"),
        ("mc2perf", "mc2perf"),
    ],
)
def test_files_are_those_of_the_source_tree(inside: str, source: str, installed: Path) -> None:
    def files(folder: Path) -> dict[str, bytes]:
        paths = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
        listed = [p for p in paths if "__pycache__" not in p.parts and "hardware_profiles" not in p.parts]
        return {str(path): (folder / path).read_bytes() for path in listed}

    assert files(installed / inside) == files(SOURCE / source)
    assert files(installed / inside)


def test_it_names_its_licence_and_its_command(installed: Path) -> None:
    (info,) = installed.glob("mc2perf-*.dist-info")
    text = (info / "METADATA").read_text(encoding="utf-8")
    assert "License-Expression: Apache-2.0" in text
    assert (info / "licenses" / "LICENSE").is_file()
    assert "mc2perf = mc2perf.__main__:main" in (info / "entry_points.txt").read_text(encoding="utf-8")
    assert (installed / "mc2perf" / "py.typed").is_file()
