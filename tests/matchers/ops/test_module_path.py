"""Module paths without what only a wrapper added to them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matchers.ops.module_path import Template, canonical, template

paths = st.lists(st.sampled_from(["layers", "0", "12", "attention", "_orig_mod", "module", "Llama", "", "é"])).map(
    ".".join
)


@pytest.mark.parametrize(
    ("logged", "path"),
    [
        ("layers.0.attention.wq", "layers.0.attention.wq"),
        ("<none>", ""),
        ("", ""),
        ("FSDPLlama3Model.layers.0", "layers.0"),
        ("Llama3Model", ""),
        ("_orig_mod.layers.0", "layers.0"),
        ("layers.0._checkpoint_wrapped_module.attention", "layers.0.attention"),
        ("module.layers.3._fsdp_wrapped_module._checkpoint_wrapped_module", "layers.3"),
        ("_orig_mod.Llama3Model.layers.0", "layers.0"),
        ("layers.0.Attention", "layers.0.Attention"),
        ("modules.0", "modules.0"),
    ],
)
def test_wrappers_and_the_class_of_the_root_are_left_out(logged: str, path: str) -> None:
    assert canonical(logged) == path


@pytest.mark.parametrize(
    ("path", "pattern", "place"),
    [
        ("layers.3.attention.wq", "layers.{}.attention.wq", "3"),
        ("layers.3.experts.12.w1", "layers.{}.experts.{}.w1", "3.12"),
        ("norm", "norm", ""),
        ("", "", ""),
        ("w1.x2", "w1.x2", ""),
    ],
)
def test_a_template_is_what_siblings_share(path: str, pattern: str, place: str) -> None:
    assert template(path) == Template(pattern, place)


@given(paths)
def test_a_canonical_path_has_no_wrapper_left(path: str) -> None:
    parts = canonical(path).split(".")
    assert not {"_orig_mod", "module", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"} & set(parts)


@given(paths)
def test_pattern_and_place_together_are_the_path(path: str) -> None:
    made = template(path)
    rest = iter(made.place.split("."))
    assert ".".join(next(rest) if part == "{}" else part for part in made.pattern.split(".")) == path
