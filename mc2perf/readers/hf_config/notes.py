"""What a config leaves to guess, or says and is not read: for the assumptions of an answer."""

from __future__ import annotations

from collections.abc import Iterator

from mc2perf.model import Model
from mc2perf.readers.hf_config.config import Config
from mc2perf.readers.hf_config.names import ELEMENTS, KNOWN_TYPES, QUANTISED, SAME_WIDTH


def notes_on(config: Config, model: Model) -> tuple[str, ...]:
    """Lines on an unknown family, element type, or width of experts."""
    return (*_on_family(config), *_on_elements(config), *_on_experts(config, model))


def stored_as(config: Config) -> tuple[str, str]:
    """What ``quantization_config`` says of the weights, and the element type nearest to it; empty without."""
    given = config.values.get("quantization_config")
    if not isinstance(given, dict) or not given:
        return "", ""
    words = [given.get(key) for key in ("format", "quant_algo", "quant_method")]
    names = [word.lower()[:40] for word in words if isinstance(word, str)]
    known = next((name for name in names if name in QUANTISED), "")
    return known or (names or ["a type it does not name"])[0], QUANTISED.get(known, "")


def _on_family(config: Config) -> Iterator[str]:
    kind = config.values.get("model_type")
    if kind is not None and str(kind) not in KNOWN_TYPES:
        yield f"model_type {str(kind)[:40]!r} is not known: the model is read by its keys alone"


def _on_elements(config: Config) -> Iterator[str]:
    for key in ("dtype", "torch_dtype"):
        kind = config.values.get(key)
        if kind is not None and str(kind).removeprefix("torch.") not in ELEMENTS:
            yield f"{key} {str(kind)[:40]!r} of the config is no known type, and is not read; --dtype counts"


def _on_experts(config: Config, model: Model) -> Iterator[str]:
    if model.experts is None or config.given("expert_width") != ["intermediate_size"]:
        return
    if str(config.values.get("model_type")) not in SAME_WIDTH:
        yield (
            f"experts are as wide as intermediate_size = {model.experts.width},"
            " for the config has no moe_intermediate_size"
        )
