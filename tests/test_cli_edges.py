"""The edges of the command line: interrupts, files that are something else, outputs that are kept."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest
from command_line import run

from mc2perf import units, validating
from mc2perf.readers.profiles import _standard_input, load_machine, shipped_folder
from mc2perf.rules import catalogue
from mc2perf.variation import parameters

MIXTRAL = ("mixtral-8x7b",)

INTERRUPTED_IMPORT = """
import sys
class Interrupt:
    def find_spec(self, name, path, target=None):
        if name == "{module}":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
sys.argv = ["mc2perf", "estimate", "mixtral-8x7b"]
from mc2perf.__main__ import main
main()
"""


def test_an_interrupt_while_modules_are_imported_is_quiet() -> None:
    for module in ("mc2perf.cli", "mc2perf.problems", "mc2perf.api"):
        code = INTERRUPTED_IMPORT.format(module=module)
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert (found.returncode, found.stdout, found.stderr) == (130, "", ""), module


@pytest.mark.parametrize(
    "args",
    [
        ("estimate", "foo"),
        ("estimate", *MIXTRAL, "--hardware", "tpu"),
        ("estimate", *MIXTRAL, "--set", "zz=3"),
        ("models", "show", "foo"),
        ("sweep", *MIXTRAL, "--vary", "ep=1,2", "--columns", "foo"),
        ("sweep", *MIXTRAL, "--vary", "ep=1,2", "--top", "1", "--by", "foo"),
        ("sweep", *MIXTRAL, "--vary", "ep=1,2", "--where", "foo < 3"),
        ("sweep", *MIXTRAL, "--vary", "foo=3"),
        ("validate", "--family", "X"),
    ],
    ids=" ".join,
)
def test_of_many_names_the_nearest_are_shown_and_what_lists_all(args: tuple[str, ...]) -> None:
    code, out, err = run(*args)
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    named, said, listing = line.partition("write one of ")[2].partition(", ... (all: 'mc2perf ")
    assert named.count(", ") == 4 and said and listing


DIMS = {name: dim for name, dim in vars(units).items() if isinstance(dim, units.Dim)}


@pytest.mark.parametrize("name", DIMS)
def test_what_no_machine_has_is_refused_with_what_it_may_have(name: str) -> None:
    dim = DIMS[name]
    for number in ("1e-300", "1e300", "-1e300"):
        with pytest.raises(ValueError, match=r"is too (small|large) for|is not a"):
            units.parse(f"{number} {dim.symbol}".removesuffix(" 1"), dim)
    for bound in filter(None, (dim.tiny, min(dim.at_most, 1e300))):
        units.parse(f"{bound!r} {dim.symbol}".removesuffix(" 1"), dim)


@pytest.mark.parametrize("factor", ["x1e-300", "x1e300", "x0"])
def test_no_number_of_a_profile_brings_out_a_warning_of_python(factor: str) -> None:
    """Warnings are errors here; one parameter of each dimension, and ends of bands."""
    found = parameters(load_machine("atlas_800i_a2"))
    few = {(p.dim.what, p.path.endswith("up_to")): p.path for p in found}
    for path in few.values():
        code, _, err = run("estimate", *MIXTRAL, "--schedule", "serial", "--set", f"{path}={factor}")
        assert code in (0, 1, 2) and "Warning" not in err, path
        assert code != 2 or len(err.splitlines()) == 1, path


def test_bounds_are_said() -> None:
    _, _, err = run("estimate", *MIXTRAL, "--set", "tiers.node.link_rate=1e-300 GB/s")
    said = "'1e-300 GB/s' is too small for a bandwidth; write 1000 B/s to 1e+06 TB/s"
    assert err == f"atlas_800i_a2.yaml: tiers.node.link_rate: {said}\n"


MINE = {
    "answer.json": ("estimate", *MIXTRAL, "--schedule", "serial", "-o", "answer.json"),
    "rows.csv": ("sweep", *MIXTRAL, "--vary", "ep=4,8", "--schedule", "serial", "-o", "rows.csv"),
    "question.yaml": ("estimate", *MIXTRAL, "--schedule", "serial", "--save-scenario", "question.yaml"),
}
"""Files that the tool writes, and how."""
SHIPPED = {
    "box.yaml": shipped_folder() / "atlas_800i_a2.yaml",
    "model.yaml": Path(units.__file__).parent / "data/models/mixtral-8x7b.yaml",
    "claims.yaml": Path(units.__file__).parent / "data/claims/moe-step-split.yaml",
}
TAKES = {
    ("estimate",): {"question.yaml", "model.yaml"},
    ("estimate", *MIXTRAL, "--hardware"): {"box.yaml"},
    ("profiles", "check"): {"box.yaml"},
    ("models", "show"): {"model.yaml"},
    ("audit",): {"claims.yaml"},
    ("inspect",): set(),
    ("compare", *MIXTRAL): set(),
    ("calibrate",): set(),
    ("diff", *MIXTRAL): {"question.yaml", "model.yaml", "answer.json"},
}
"""What takes a file -> files that it takes."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    for name, file in SHIPPED.items():
        shutil.copy(file, folder / name)
    with contextlib.chdir(folder):
        assert all(run(*args)[0] == 0 for args in MINE.values())
        Path("run.sh").write_text("torchrun x.py --num-layers 32\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize("command", TAKES, ids=" ".join)
def test_a_file_that_belongs_elsewhere_is_one_line_that_says_where(
    command: tuple[str, ...], files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files)
    for name in (*MINE, *SHIPPED):
        code, _, err = run(*command, name)
        if name in TAKES[command]:
            assert code in (0, 1), (name, err)
            continue
        (line,) = err.splitlines()
        assert code == 2 and name in line and ("write" in line), name
        assert line.startswith(f"{name}: is a") or "no YAML file" in line or "not a profile name" in line, (
            line
        )


def test_a_file_that_is_nothing_to_estimate_is_sent_to_inspect(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files)
    said = "run.sh: is no model and no scenario; 'mc2perf inspect run.sh' says what it is\n"
    assert run("estimate", "run.sh") == (2, "", said)


@pytest.mark.parametrize(
    ("args", "name"),
    [
        (("estimate", ""), "target"),
        (("inspect", ""), "files"),
        (("audit", ""), "claims"),
        (("estimate", *MIXTRAL, "--save-scenario", ""), "save_scenario"),
        (("estimate", *MIXTRAL, "--profiles", ""), "profiles"),
        (("validate", "--values", ""), "values"),
        (("models", "show", ""), "name"),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, tuple) else part,
)
def test_empty_text_is_no_file_and_no_answer(args: tuple[str, ...], name: str) -> None:
    assert run(*args) == (2, "", f"{name}: is empty; write something, or leave it out\n")


ALONE = "Cannot tell: 'a' stands alone; add a second claim"


@pytest.mark.parametrize(
    ("claims", "code", "said"),
    [
        (["a:comm_ratio=47%,tokens_per_second=580"], 1, f"{ALONE} with its comm_ratio,"),
        (["a:speedup=1.2"], 1, f"{ALONE} with its comm_ratio (and of the first),"),
        (["a:comm_ratio=47%", "b:tokens_per_second=5"], 1, "Cannot tell: b: states no gain over 'a'; write "),
        (["a:tokens_per_second=5", "b:comm_ratio=20%"], 1, "Cannot tell: b: 'a' states no comm_ratio;"),
        (["a:comm_ratio=50%", "b:comm_ratio=40%", "c:tokens_per_second=1"], 1, "Cannot tell: c: "),
        (["a:comm_ratio=50%", "b:comm_ratio=40%"], 0, "Holds: b."),
        (["a:comm_ratio=50%", "b:speedup=3", "c:tokens_per_second=1"], 1, "Does not hold: b is impossible"),
    ],
    ids=lambda part: "; ".join(part) if isinstance(part, list) else "",
)  # fmt: skip
def test_an_audit_of_too_little_says_so(claims: list[str], code: int, said: str) -> None:
    args = ["audit", *(word for claim in claims for word in ("--claim", claim))]
    found, out, _ = run(*args)
    assert (found, out.startswith(said)) == (code, True), out
    tree = json.loads(run(*args, "--format", "json")[1])
    assert tree["holds"] is (code == 0)
    assert tree["audits"][0]["claims"][-1]["verdict"] in ("base", "cannot tell", "holds")


SCAN = "op,ranks,size_bytes_whole_array,time_us\n" + "".join(
    f"all_reduce,8,{2**n},{60 + 2**n / 8e4:.2f}\n" for n in range(10, 28)
)


@pytest.fixture
def scans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A measurement under several names, and a folder that holds it beside something else."""
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    Path("runs/note.txt").write_text("nothing\n", encoding="utf-8")
    for name in ("one.csv", "copy.csv", "runs/its.csv"):
        Path(name).write_text(SCAN, encoding="utf-8")
    Path("tiles.csv").write_text("tile_cnt,time_us\n1,900\n2,700\n4,650\n8,800\n", encoding="utf-8")
    Path("link.csv").symlink_to("tiles.csv")
    return tmp_path


def test_a_measurement_named_twice_is_counted_once(scans: Path) -> None:
    alone = run("calibrate", "one.csv", "--format", "json")
    twice = run("calibrate", "one.csv", "./one.csv", "copy.csv", "runs", "--format", "json")
    assert (alone[0], twice[0], twice[1]) == (0, 0, alone[1])
    told, notes = json.loads(alone[2]), json.loads(twice[2]).pop("notes")
    assert notes[0] == "one.csv: is named twice; counted once"
    assert notes[1:] == [
        f"{name}: is the same as 'one.csv'; counted once" for name in ("copy.csv", "runs/its.csv")
    ]
    assert {**json.loads(twice[2]), "notes": told["notes"]} == told


SIZES = ("all_gather_matmul", "-m", "4096", "-n", "4096", "-k", "4096", "--ranks", "8")


def test_two_runs_cannot_be_the_same_file(scans: Path) -> None:
    code, out, _ = run("compare", *SIZES[:1], "tiles.csv", "link.csv", *SIZES[1:])
    assert code == 0 and "link.csv: is the same as 'tiles.csv'; counted once" in out
    code, _, err = run("compare", *SIZES[:1], "alltoall=tiles.csv", "mc2=link.csv", *SIZES[1:])
    assert (code, err) == (2, "mc2=link.csv: is the same as 'tiles.csv'; name another run\n")


def test_folders_and_several_files_are_taken_as_by_inspect(scans: Path, files: Path) -> None:
    assert run("calibrate", "runs")[1] == run("calibrate", "runs/its.csv")[1] != ""
    assert run("inspect", "runs")[0] == 0
    Path("runs/its.csv").unlink()
    said = "runs: none of its 1 files is a measurement; 'mc2perf inspect' says why\n"
    assert run("calibrate", "runs") == (2, "", said)
    box, model = str(files / "box.yaml"), str(files / "model.yaml")
    code, out, err = run("profiles", "check", box, model, box)
    assert (
        code == 2
        and out.count("fine") == 2
        and err.startswith("model.yaml: is a model, not a hardware profile")
    )


@pytest.mark.parametrize("name", catalogue.OPERATORS)
def test_a_check_without_sizes_says_which_and_gives_an_example_that_runs(name: str) -> None:
    for hardware in ("atlas_800i_a2", "atlas_800t_a3", "ascend_950pr"):
        code, out, _ = run("check", name, "--hardware", hardware)
        said = [line for line in out.splitlines() if line.startswith("not given: ")]
        assert bool(said) is ("      not given: " in out)
        if not said:
            assert (code, out.startswith("Legal: ")) in ((0, True), (1, False))
            continue
        assert code in (0, 1) and (code == 0 or "annot tell" in out.splitlines()[0] or "Refused" in out)
        example = said[0].partition(": mc2perf ")[2].split()
        code, out, err = run(*example)
        assert code in (0, 1) and out and not err and "not given" not in out, example


def test_what_cannot_be_told_is_not_refused() -> None:
    assert run("check", "matmul_all_reduce")[1].startswith("Cannot tell: matmul_all_reduce.")


def test_beside_auto_stands_what_it_comes_to() -> None:
    out = run("diff", *MIXTRAL, "--to", "ep=4")[1]
    assert re.search(r"^ep +auto \(8\) +4 ", out, re.MULTILINE)
    more = run("diff", *MIXTRAL, "--to", "batch_size=2")[1]
    assert re.search(r"^batch_size +auto \(1\) +2 ", more, re.MULTILINE)


def test_paths_say_how_much_slower_the_path_taken_is() -> None:
    args = [
        "paths",
        "qwen3-235b-a22b",
        "--hardware",
        "atlas_800t_a3",
        "--tp",
        "8",
        "--ep",
        "16",
        "--prefill-mc2",
    ]
    tree = json.loads(run(*args, "--format", "json")[1])
    taken = [next(s["path"] for s in tree["taken"] if s["from"] <= t <= s["to"]) for t in tree["tokens"]]
    least = [min(times) for times in zip(*tree["times"].values(), strict=True)]
    loss = [tree["times"][name][i] / least[i] - 1.0 for i, name in enumerate(taken)]
    assert tree["loss"] == pytest.approx(loss)
    worst = tree["tokens"][loss.index(max(loss))]
    said = f"{median(loss):.0%} slower than the fastest in the median, {max(loss):.0%} at {worst:g} tokens ("
    assert said in run(*args)[1].splitlines()[0]


def test_files_are_checked_before_the_long_run(scans: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def long_run(*_: object) -> None:
        raise AssertionError("the files are wrong already")

    monkeypatch.setattr(validating, "validate", long_run)
    Path("mine.yaml").write_text("T1-99: 5\n", encoding="utf-8")
    args = ["validate", "--values", "mine.yaml", "--kernels", "nowhere", "--family", "T1"]
    code, out, err = run(*args)
    assert (code, out) == (2, "") and len(err.splitlines()) == 2
    assert "nowhere" in err and "'T1-99' is no measurement" in err


def test_a_profile_on_standard_input_goes_by_its_name() -> None:
    text = (shipped_folder() / "atlas_800t_a3.yaml").read_text(encoding="utf-8")
    box = re.sub("(?m)^name: .*", "name: my_box", text).encode()
    changes = ["--to", "ep=4"]
    claim = ["--claim", "a:comm_ratio=30%", "--target"]
    for first, rest in {
        "estimate": [],
        "check": [],
        "buffers": [],
        "paths": [],
        "sensitivity": [],
        "diff": changes,
    }.items():
        _standard_input.cache_clear()
        _, out, _ = run(first, *MIXTRAL, "--hardware", "-", *rest, stdin=box)
        assert "on my_box" in out and "on -" not in out, first
    _standard_input.cache_clear()
    assert "on my_box" in run("audit", *claim, *MIXTRAL, "--hardware", "-", stdin=box)[1]
    _standard_input.cache_clear()


@pytest.mark.parametrize(
    "args",
    [
        ("sweep", *MIXTRAL, "--vary", "ep=3,5", "--schedule", "serial", "-o", "old.csv"),
        ("estimate", "matmul_all_reduce", *SIZES[1:], "--schedule", "dual_batch", "-o", "old.json"),
        ("breakeven", "mixtral-8x7b", "--ep", "1", "--schedule", "mc2", "-o", "old.csv"),
    ],
    ids=lambda args: args[0],
)
def test_an_older_file_stays_where_nothing_is_answered(
    args: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    old = Path(args[-1])
    code, _, err = run(*args)
    assert code == 1 and old.is_file() and "as it was" not in err  # the reasons, where nothing is lost
    old.write_text("mine", encoding="utf-8")
    code, _, err = run(*args)
    assert (code, old.read_text(encoding="utf-8")) == (1, "mine")
    assert f"'{old}' is as it was" in err and f"rows in {old}" not in err
    assert sorted(tmp_path.iterdir()) == [tmp_path / old]


def test_a_negative_answer_is_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for args in (["audit"], ["check", "matmul_all_reduce"], ["estimate", *MIXTRAL, "--memory"]):
        Path("old.txt").write_text("mine", encoding="utf-8")
        assert run(*args, "-o", "old.txt")[0] == 1
        assert Path("old.txt").read_text(encoding="utf-8") != "mine"
