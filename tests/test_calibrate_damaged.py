"""Damaged files through calibration: a clear message, or a fit without them; never a traceback."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from test_measured_fuzz import GOOD

from mc2perf.calibrating import calibrate
from mc2perf.calibrating.profile import profile_text
from mc2perf.problems import InputError

TOLD = {
    "op": "all_reduce", "ranks": "8", "dtype": "bf16", "operator": "matmul_all_reduce",
    "m": "4096", "n": "4096", "k": "4096",
}  # fmt: skip
ODD = ("0", "1e999", "-1", "nan", "9" * 30, "N/A", "1", "1e-30", "1e17", "")
LONG = {
    "benchmark": "op,ranks,size_bytes_whole_array,time_us\n"
    + "".join(f"all_reduce,8,{2**n},{50 + 2**n / 75e3:.3f}\n" for n in range(12, 26)),
    "matmuls": "m,n,k,dtype,time_us\n"
    + "".join(f"{m},4096,4096,bf16,{20 + m * 0.14:.2f}\n" for m in (16, 64, 256, 1024, 4096)),
    "scan": "tile_cnt,time_us\n" + "".join(f"{n},{1000 + abs(n - 4) * 50}\n" for n in range(1, 9)),
}

BAD = {
    "truncated JSON": (b'{"step50": {"collective": {"Communication Time Info"', "is the file cut off"),
    "Git LFS pointer": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 1\n",
        "git lfs pull",
    ),
    "UTF-16 of Excel": ("op,ranks\n".encode("utf-16"), "is UTF-16; save it as UTF-8"),
    "no numbers": (b"m,n,k,dtype,time_us\n1,2,3,bf16,nan\n", "holds no times that can be used"),
    "negative ranks": (b"op,ranks,size_bytes_whole_array,time_us\nall_reduce,-8,8,8\n", "is negative"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_files_are_one_line_with_their_name(tmp_path: Path, what: str) -> None:
    content, told = BAD[what]
    file = tmp_path / "mail.txt"
    file.write_bytes(content)
    with pytest.raises(InputError) as caught:
        calibrate([file], "atlas_800t_a2", TOLD)
    assert any(told in line for line in caught.value.problems)
    assert all(line.startswith(str(file)) for line in caught.value.problems)


@pytest.mark.parametrize("name", [*GOOD, *LONG])
def test_files_with_odd_numbers(tmp_path: Path, name: str) -> None:
    """What is fitted from them is still a profile that loads."""
    text, rng = {**GOOD, **LONG}[name], random.Random(name)
    file = tmp_path / "x"
    for _ in range(3):
        numbers = list(re.finditer(r"\d+(\.\d+)?", text))
        at = rng.choice(numbers)
        changed = text[: at.start()] + rng.choice(ODD) + text[at.end() :]
        file.write_text(changed, encoding="utf-8")
        try:
            found = calibrate([file], "atlas_800t_a2", TOLD)
        except InputError as error:
            assert all("\n" not in line for line in error.problems)
            continue
        if found.edits:
            assert "kind: fitted" in profile_text(found, "atlas_800t_a2", None)
