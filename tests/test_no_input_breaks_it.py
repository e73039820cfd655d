"""Random words, files and bytes: an answer or lines that say what is wrong, never a traceback."""

from __future__ import annotations

import json

import pytest
import yaml
from command_line import run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mc2perf.operators import DTYPES, TARGETS
from mc2perf.readers.models import model_names
from mc2perf.readers.profiles import profile_names
from mc2perf.scenario import SCHEDULES, inputs

NUMBERS = st.one_of(
    st.sampled_from(
        ["0", "1", "2", "7", "8", "64", "4096", "4K", "1M", "auto", "nan", "-1", "1e30", "80 %", "1.5"]
    ),
    st.integers(-10, 5000).map(str),
    st.floats().map(str),
)
WORDS = st.one_of(
    st.sampled_from(
        [*DTYPES, *SCHEDULES, "all", *profile_names(), "aiv", "measured", "vendor_model", "m", "n", "8.0"]
    ),
    st.text(max_size=12),
)
PATHS = [
    "memory.bandwidth",
    "tiers.node.link_rate",
    "cube.cores",
    "cube.rule",
    "tiers.node.engine",
    "limits.pieces",
    "tiers.0.²",
]


@st.composite
def questions(draw: st.DrawFn) -> list[str]:
    names = [*TARGETS, *model_names()]
    target = draw(st.one_of(st.sampled_from(names), st.sampled_from(["mixtral-8x7b", "moe_layer"]), WORDS))
    kind = "operator" if target in TARGETS else "model"
    args = [target.replace("\0", "") or "x"]
    if kind == "operator" and draw(st.booleans()):
        args += [
            word for axis in "mnk" for word in (f"-{axis}", draw(st.sampled_from(["64", "4096", "8192"])))
        ]
    for spec, how in inputs():
        weight = 1 if how.only in ("", kind) else 10
        if draw(st.integers(0, 8 * weight)) == 0:
            flag = f"--{spec.name.replace('_', '-')}"
            if spec.name == "rdma":
                args.append(draw(st.sampled_from(["--rdma", "--no-rdma"])))
                continue
            likely = st.sampled_from(how.choices) if how.choices else NUMBERS if how.dim else WORDS
            args.append(f"{flag}={draw(st.one_of(likely, likely, likely, WORDS))}".replace("\0", ""))
    if draw(st.integers(0, 5)) == 0:
        path = draw(st.one_of(st.sampled_from(PATHS), st.text(max_size=8)))
        args.append(f"--set={path}={draw(st.one_of(NUMBERS, WORDS))}".replace("\0", ""))
    if draw(st.booleans()):
        args.append(f"--format={draw(st.sampled_from(['json', 'csv', 'markdown', 'table', 'x']))}")
    return [*args, *(["--explain"] if draw(st.integers(0, 4)) == 0 else [])]


def holds(code: int, out: str, err: str) -> None:
    assert code in (0, 1, 2)
    assert "Traceback" not in err
    assert (out == "") is (code == 2)
    if code == 2:
        assert err.strip()


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(args=questions())
def test_no_flags_break_it(args: list[str]) -> None:
    holds(*run("estimate", *args))


TREES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
KEYS = st.one_of(
    st.sampled_from([spec.name for spec, _ in inputs()] + ["set", "dispatcher", "scenario_version"]),
    st.text(max_size=6),
)


@settings(max_examples=75, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    tree=st.dictionaries(KEYS, st.one_of(TREES, NUMBERS, WORDS), max_size=5),
    target=st.one_of(st.just("mixtral-8x7b"), TREES),
)
def test_no_scenario_file_breaks_it(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[str, object], target: object
) -> None:
    file = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    text = yaml.safe_dump({"target": target, **tree}, allow_unicode=True)
    file.write_text(text, encoding="utf-8", errors="replace")
    holds(*run("estimate", str(file)))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    raw=st.one_of(
        st.binary(max_size=60), st.text("{}[]:,&*!|>-#'\"%@? \n\tabt01", max_size=60).map(str.encode)
    )
)
def test_no_bytes_break_it(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    for name, command in (("f.yaml", "estimate"), ("f.json", "estimate"), ("f.yaml", "check")):
        file = tmp_path_factory.getbasetemp() / name
        file.write_bytes(raw)
        words = ["profiles", "check"] if command == "check" else [command]
        code, out, err = run(*words, str(file))
        assert (code, out) == (2, ""), err
        assert "Traceback" not in err


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    change=st.dictionaries(
        st.sampled_from(
            [
                "hidden_size",
                "num_local_experts",
                "num_experts_per_tok",
                "intermediate_size",
                "vocab_size",
                "num_hidden_layers",
                "num_attention_heads",
                "sliding_window",
            ]
        ),
        TREES,
        min_size=1,
        max_size=2,
    )
)
def test_no_config_breaks_it(change: dict[str, object]) -> None:
    sizes: dict[str, object] = {
        "hidden_size": 1024, "num_hidden_layers": 2, "num_attention_heads": 16, "intermediate_size": 3584,
        "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 32000,
    }  # fmt: skip
    holds(*run("estimate", "-", stdin=json.dumps(sizes | change).encode()))
