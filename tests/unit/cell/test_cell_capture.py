"""Captured values: what travels, how, and what is refused by name."""

import pickle
import threading
import types

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_ddl.cell.capture import capture
from jupyter_ddl.errors import CaptureError
from tests.unit.cell.cell_makers import notebook, restored

FUNCTIONS = """
import functools
lr = 5
def scaled(x):
    return x * lr
def factorial(n):
    return 1 if n == 0 else n * factorial(n - 1)
def even(n):
    return True if n == 0 else odd(n - 1)
def odd(n):
    return False if n == 0 else even(n - 1)
def plus_lr(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args) + lr
    return wrapper
@plus_lr
def decorated(x):
    return scaled(x)
class Base:
    def value(self):
        return lr
class Derived(Base):
    def value(self):
        return super().value() + 100
    def kind(self):
        return Derived
made = Derived()
"""


def taken(namespace, *names):
    return capture({name: namespace[name] for name in names}, namespace)


_SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner)
)


@settings(max_examples=50)
@given(st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), _VALUES, min_size=1))
def test_values_arrive_as_they_left(values):
    captured = capture(values, notebook())
    main = restored(captured, {})
    assert main == values
    assert [each.name for each in captured.names] == list(values)
    assert sum(each.size_bytes for each in captured.names) == len(captured.payload)


def test_nothing_captured_is_no_payload():
    captured = capture({}, notebook())
    assert (captured.names, captured.digest, captured.payload) == ((), None, b"")


def test_functions_of_the_notebook_see_the_trials_names():
    namespace = notebook(FUNCTIONS)
    names = ("scaled", "factorial", "even", "decorated", "made", "Derived")
    main = restored(taken(namespace, *names))
    main["lr"] = 7
    assert main["scaled"].__globals__ is main
    assert main["scaled"](2) == 14
    assert main["factorial"](5) == 120
    assert main["even"](4)
    assert main["decorated"](1) == 14
    assert main["made"].value() == 107
    assert main["made"].kind() is main["Derived"]


def test_names_that_a_function_uses_come_with_it():
    main = restored(taken(notebook(FUNCTIONS), "decorated"))
    assert main["decorated"](1) == 10
    assert main["lr"] == 5


def test_closures_keep_their_own_values():
    namespace = notebook("def make(n):\n    def inner(x):\n        return x + n\n    return inner")
    namespace["add_two"] = namespace["make"](2)
    assert restored(taken(namespace, "add_two"))["add_two"](1) == 3


def test_objects_that_share_a_part_still_share_it():
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    main = restored(capture({"model": model, "optimizer": optimizer}, notebook()))
    assert main["optimizer"].param_groups[0]["params"][0] is main["model"].weight


def test_a_large_array_stays_where_it_is():
    array = np.zeros(50_000_000, dtype=np.uint8)
    captured = capture({"array": array}, notebook())
    ((digest, view),) = captured.buffers
    assert np.shares_memory(np.frombuffer(view, dtype=np.uint8), array)
    assert len(captured.payload) < 1000
    assert captured.names[0].size_bytes == len(captured.payload) + array.nbytes
    again = capture({"array": array.copy()}, notebook())
    assert again.buffers[0][0] == digest


def test_a_small_array_goes_in_the_stream():
    captured = capture({"array": np.zeros(100)}, notebook())
    assert captured.buffers == ()
    assert restored(captured)["array"].shape == (100,)


def test_frames_and_fortran_arrays_arrive_whole():
    frame = pd.DataFrame({"a": np.arange(20_000.0), "b": ["x"] * 20_000})
    fortran = np.asfortranarray(np.arange(20_000.0).reshape(100, 200))
    main = restored(capture({"frame": frame, "fortran": fortran}, notebook()))
    pd.testing.assert_frame_equal(main["frame"], frame)
    np.testing.assert_array_equal(main["fortran"], fortran)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool", "int64"])
def test_a_large_tensor_goes_beside_the_stream(dtype):
    torch = pytest.importorskip("torch")
    tensor = (torch.arange(1 << 20).reshape(1024, 1024) % 2).to(getattr(torch, dtype))
    captured = capture({"tensor": tensor, "part": tensor.T}, notebook())
    assert len(captured.payload) < 2000
    main = restored(captured)
    assert main["tensor"].dtype == tensor.dtype
    assert torch.equal(main["tensor"], tensor)
    assert torch.equal(main["part"], tensor.T)
    main["tensor"][0, 0] = 1  # writable, as a rank's copy-on-write pages are


def test_large_parameters_keep_their_gradient_flag():
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(1024, 1024)
    captured = capture({"layer": layer}, notebook())
    weight = restored(captured)["layer"].weight
    assert len(captured.payload) < 10_000
    assert isinstance(weight, torch.nn.Parameter)
    assert weight.requires_grad
    assert torch.equal(weight, layer.weight)


def test_a_tensor_on_another_device_is_refused_with_advice():
    torch = pytest.importorskip("torch")
    model = types.SimpleNamespace(weight=torch.empty(4, device="meta"))
    with pytest.raises(CaptureError, match=r"model.weight, part of 'model'.* with .cpu\(\)"):
        capture({"model": model}, notebook())


def test_modules_that_values_refer_to_are_known():
    captured = capture({"np": np, "frame": pd.DataFrame()}, notebook())
    assert {"numpy", "pandas"} <= {name.partition(".")[0] for name in captured.modules}


class Part:
    """Something with parts."""


def loader_with_a_lock() -> Part:
    loader = Part()
    loader.dataset = Part()
    loader.dataset.owner = loader  # the way back must not be taken for the culprit
    loader.dataset.lock = threading.Lock()
    return loader


@pytest.mark.parametrize(
    ("value", "path", "advice"),
    [
        (loader_with_a_lock(), "value.dataset.lock", "create it inside the cell"),
        ((i for i in range(3)), "value", "turn it into a list"),
        ([1, {"a": (2, threading.RLock())}], "value[1]['a'][1]", "create it inside the cell"),
    ],
    ids=["attribute", "generator", "containers"],
)
def test_what_cannot_be_pickled_is_named_with_its_path(value, path, advice):
    with pytest.raises(CaptureError) as caught:
        capture({"value": value}, notebook())
    assert caught.value.path == path
    assert str(caught.value).startswith(path)
    assert advice in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_open_file_is_refused_with_advice():
    with open(__file__, "rb") as file, pytest.raises(CaptureError, match="open it inside the cell"):
        capture({"value": file}, notebook())


def test_the_path_leads_through_functions_and_closures():
    namespace = notebook("def use():\n    return loader.dataset", loader=loader_with_a_lock())
    with pytest.raises(CaptureError, match=r"^use → loader\.dataset\.lock"):
        taken(namespace, "use")


def test_the_path_follows_the_state_that_a_class_chooses():
    class Chosen:
        def __getstate__(self):
            return {"kept": threading.Lock()}

    with pytest.raises(CaptureError) as caught:
        capture({"value": Chosen()}, notebook())
    assert caught.value.path == "value.kept"


def test_an_error_of_the_values_own_code_is_told():
    class Broken:
        def __reduce__(self):
            raise RuntimeError("no\nway")

    with pytest.raises(CaptureError, match=r"value is a .*Broken and cannot travel .*\(no way\)"):
        capture({"value": Broken()}, notebook())


def test_endless_nesting_is_refused():
    value: list = []
    for _ in range(20_000):
        value = [value]
    try:
        with pytest.raises(CaptureError, match="value"):
            capture({"value": value}, notebook())
    finally:
        while value:  # freeing it at once would recurse in C
            value = value.pop()


def test_over_the_limit_the_largest_names_are_listed():
    values = {"small": b"x" * 10, "texts": [b"y" * 700], "big": b"z" * 5000}
    with pytest.raises(CaptureError, match=r"largest: big > 4\.9 KiB, texts") as caught:
        capture(values, notebook(), limit_bytes=2000)
    assert caught.value.name == "big"
    assert caught.value.message.startswith("the values that the cell uses are too large to send")
    assert caught.value.message.endswith("turn lists into arrays, or raise --capture-limit")


def test_arrays_count_towards_the_limit():
    values = {"array": np.zeros(1_000_000), "more": np.zeros(2_000_000)}
    with pytest.raises(CaptureError, match=r"largest: more 15\.3 MiB, array > 7\.6 MiB"):
        capture(values, notebook(), limit_bytes=1_000_000)


def test_the_stream_needs_the_ranks_unpickler():
    captured = taken(notebook(FUNCTIONS), "scaled")
    with pytest.raises(pickle.UnpicklingError, match="persistent"):
        pickle.loads(captured.payload)


def test_a_module_with_a_class_of_its_own_travels_by_name():
    torch = pytest.importorskip("torch")
    names = notebook("import torch\ndef flag():\n    return torch.backends.cudnn.enabled")
    captured = taken(names, "flag")
    assert restored(captured, {})["flag"]() is torch.backends.cudnn.enabled
    assert "torch.backends.cudnn" in captured.modules
