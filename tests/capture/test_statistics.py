from __future__ import annotations

import math
import struct
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from capture.sketch import GAMMA, mixed
from capture.statistics import Statistics, Summary, Unmeasurable, _Rows

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support")

FLOATS = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
]
INTEGERS = [
    torch.bool,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
]
COMPLEX = [torch.complex32, torch.complex64, torch.complex128]
DTYPES = FLOATS + INTEGERS + COMPLEX


def summaries(*tensors: torch.Tensor, kernel: str = "c", **settings: Any) -> list[Summary]:
    statistics = Statistics(**settings)
    if kernel == "torch":
        statistics._native = None
    assert statistics.kernel_name == kernel
    slots = [statistics.measure(tensor) for tensor in tensors]
    assert slots == list(range(len(tensors)))
    return list(statistics.results().values())


def random_bits(shape: list[int], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Every pattern of bits is as likely, so there are NaN, infinities, subnormals and negative zeros."""
    generator = torch.Generator().manual_seed(seed)
    if dtype is torch.bool:
        return torch.randint(2, shape, generator=generator).bool()
    size = dtype.itemsize
    data = torch.randint(256, (*shape, size), dtype=torch.uint8, generator=generator)
    # of 16 elements one is zero, and one has all bits of the exponent set
    data[torch.randint(16, shape, generator=generator) == 0] = 0
    special = torch.randint(16, shape, generator=generator) == 1
    data[..., -1][special] |= 0x7F
    data[..., -(2 if size > 1 else 1)][special] |= 0xF8
    return data.reshape(-1).view(dtype).reshape(shape)


def digest_of(data: bytes) -> int:
    """The definition in docs/sketch.md."""
    words = [len(data), *(int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), 8))]
    return sum(mixed((word + n * GAMMA) % 2**64) for n, word in enumerate(words, 1)) % 2**64


def reference(tensor: torch.Tensor) -> Summary:
    """The slow definition, on Python's numbers."""
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    data = (torch.view_as_real(plain) if plain.is_complex() else plain).reshape(-1)
    data = data.clone(memory_format=torch.contiguous_format).as_strided(data.shape, (1,)).view(torch.uint8)
    elements: list[Any] = (plain.to(torch.complex128) if plain.is_complex() else plain.double()).reshape(-1).tolist()
    parts = [(z.real, z.imag) if plain.is_complex() else (z,) for z in elements]
    nan = sum(any(map(math.isnan, z)) for z in parts)
    finite = [z for z in parts if all(map(math.isfinite, z))]
    sizes = [math.sqrt(math.fsum(x * x for x in z)) if len(z) > 1 else abs(z[0]) for z in finite]
    values = [x for z in finite for x in z]
    try:
        squares = math.fsum(x * x for x in values)
    except OverflowError:
        squares = math.inf
    return Summary(
        numel=len(elements),
        nan=nan,
        inf=len(elements) - len(finite) - nan,
        zero=sum(not any(z) for z in finite),
        l1=sum(sizes) if finite else None,
        l2=math.sqrt(squares) if finite else None,
        min=min(values) if finite else None,
        max=max(values) if finite else None,
        mean=sum(values) / len(values) if finite else None,
        digest=digest_of(bytes(data.tolist())),
    )


def assert_same(found: Summary, expected: Summary) -> None:
    for name in ("numel", "nan", "inf", "zero", "min", "max", "digest"):
        assert getattr(found, name) == getattr(expected, name), name
    if expected.l1 is None or found.l1 is None:
        assert found.l1 is expected.l1 is found.l2 is found.mean is found.min is found.max
        return
    assert found.l1 == pytest.approx(expected.l1, rel=1e-12)
    assert found.l2 == pytest.approx(expected.l2, rel=1e-12)
    if math.isfinite(found.l1):
        assert found.mean == pytest.approx(expected.mean, abs=1e-12 * found.l1)
    assert "-0.0" not in {str(found.min), str(found.max)}


def views(x: torch.Tensor) -> Iterator[torch.Tensor]:
    """Ways to hold elements that are not one after the other."""
    yield x
    yield x.t()
    yield x[1:, ::3]
    yield x[:, 1:]
    yield x[:0]
    yield x[0, 0]
    yield x[:, :1].expand(-1, 40)
    yield x[:4, :12].reshape(2, 2, 3, 4).permute(2, 0, 3, 1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kernel", ["c", "torch"])
def test_statistics_of_every_type_and_view(kernel: str, dtype: torch.dtype) -> None:
    x = random_bits([33, 41], dtype, 5)
    for view, found in zip(views(x), summaries(*views(x), kernel=kernel, sketch=False), strict=True):
        assert_same(found, reference(view))


shapes = st.lists(st.integers(0, 9), max_size=4)


@given(shapes, st.sampled_from(DTYPES), st.integers(0, 2**31), st.data())
def test_c_and_torch_agree(shape: list[int], dtype: torch.dtype, seed: int, data: st.DataObject) -> None:
    x = random_bits(shape, dtype, seed).permute(data.draw(st.permutations(range(len(shape)))))
    for d, size in enumerate(x.shape):
        x = x[
            (slice(None),) * d
            + (slice(data.draw(st.integers(0, max(size - 1, 0))), None, data.draw(st.integers(1, 3))),)
        ]
    if x.is_complex():
        x = data.draw(st.sampled_from([x, x.conj(), x.imag, x.conj().imag] if dtype is not torch.complex32 else [x]))
    (c,) = summaries(x)
    (plain,) = summaries(x, kernel="torch")
    assert_same(c, plain)
    assert_same(c, reference(x))
    if c.l2 is not None and math.isfinite(c.l2):
        for one, other in zip(*(struct.unpack("<16d", found.sketch or b"") for found in (c, plain)), strict=True):
            assert one == pytest.approx(other, abs=1e-12 * c.l2)


@pytest.mark.parametrize("shape", [(1500, 1100), (70_001, 40)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.complex64], ids=str)
def test_strides_and_threads_change_no_bit(dtype: torch.dtype, shape: tuple[int, int]) -> None:
    """The order of all additions is that of the elements, also in rows that are longer than what a thread takes."""
    x = torch.randn(shape, dtype=dtype)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        many = summaries(x, x.t(), x.t().contiguous().t(), x[:, :-10], x[:, :-10].contiguous())
        torch.set_num_threads(1)
        one = summaries(x, x.t().contiguous())
    finally:
        torch.set_num_threads(threads)
    assert many[0] == many[2] == one[0]
    assert many[1] == one[1]
    assert many[3] == many[4]
    assert_same(many[0], summaries(x, kernel="torch", sketch=False)[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("special", [(), (math.inf,), (math.nan, -math.inf)], ids=str)
def test_a_wider_type_changes_no_bit_but_the_digest(dtype: torch.dtype, special: tuple[float, ...]) -> None:
    """There are several ways through the compiled kernel, with one order of additions."""
    x = (torch.randn(70_001) * 1e-4).masked_fill(torch.rand(70_001) < 0.1, 0.0)
    for number, value in enumerate(special):
        x[5_000 + 20_000 * number :: 7 + number][:3_000] = value
    x = x.to(dtype)
    narrow, wide, few, few_wide = summaries(x, x.double(), x[:100], x[:100].double())
    assert narrow._replace(digest=None) == wide._replace(digest=None)
    assert few._replace(digest=None) == few_wide._replace(digest=None)


def test_flushing_subnormal_numbers_changes_nothing() -> None:
    x = torch.tensor([1e-40, 0.0, -3e-45, 1.0])
    half = torch.tensor([6e-8, 1.0], dtype=torch.float16)
    before = summaries(x, half)
    if not torch.set_flush_denormal(True):
        return  # a processor that cannot
    try:
        assert summaries(x, half) == before
    finally:
        torch.set_flush_denormal(False)
    assert before[0].zero == 1


def test_zero_dimensions_and_nothing() -> None:
    scalar, empty, nan = summaries(torch.tensor(-2.5), torch.empty(0, 3), torch.full((2,), math.nan))
    assert (scalar.numel, scalar.l1, scalar.min, scalar.mean) == (1, 2.5, -2.5, -2.5)
    assert (empty.numel, empty.l1, empty.max) == (0, None, None)
    assert (nan.nan, nan.l2) == (2, None)


PINNED = ["0ddf24500ca8d356", "5a17faac50b58113", "e220a8397b1dcdaf"]


def test_the_literal_digests_of_some_tensors() -> None:
    found = summaries(torch.arange(5, dtype=torch.int16), torch.tensor([1.0, -1.0]), torch.empty(0))
    assert [f"{summary.digest:016x}" for summary in found] == PINNED


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.float8_e5m2], ids=str)
def test_no_change_of_one_bit_or_exchange_of_two_elements_goes_unseen(dtype: torch.dtype) -> None:
    """A quarter of a million changes for each type, by the terms of the digest that they replace."""
    count, size = 250_000, dtype.itemsize
    generator = torch.Generator().manual_seed(3)
    x = torch.randint(256, (1 << 16,), dtype=torch.uint8, generator=generator)
    (before,) = summaries(x.view(dtype))
    words = x.view(torch.int64)
    terms = _terms(words, torch.arange(len(words)))
    assert (int(terms.sum()) + mixed((len(x) + GAMMA) % 2**64)) % 2**64 == before.digest

    at = torch.randint(len(words), (count // 2,), generator=generator)
    bit = torch.randint(64, (count // 2,), generator=generator)
    flipped = _terms(words[at] ^ (1 << bit), at) - terms[at]
    assert bool((flipped != 0).all())

    elements = x.view(-1, size)
    first, second = torch.randint(len(elements), (2, count // 2), generator=generator)
    exchanged = _exchange(words, terms, elements, first, second, size)
    differ = (elements[first] != elements[second]).any(1)
    assert bool((exchanged != 0).eq(differ).all())
    # changes lead to different digests from each other, too
    assert len(set(flipped.tolist())) == len(set(zip(at.tolist(), bit.tolist(), strict=True)))


def _terms(words: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    from capture.kernels import eager

    return eager.mixed(words + (at + 2) * eager._signed(GAMMA))


def _exchange(
    words: torch.Tensor,
    terms: torch.Tensor,
    elements: torch.Tensor,
    first: torch.Tensor,
    second: torch.Tensor,
    size: int,
) -> torch.Tensor:
    """What each exchange of two elements adds to the digest."""
    one, other = first * size // 8, second * size // 8
    pair = torch.stack([words[one], words[other]], 1).view(torch.uint8).reshape(-1, 16).clone()
    row = torch.arange(len(first))[:, None]
    offset = torch.arange(size)
    same = one == other
    in_one = (first * size % 8)[:, None] + offset
    in_other = torch.where(same, 0, 8)[:, None] + (second * size % 8)[:, None] + offset
    pair[row, in_one] = elements[second]
    pair[row, in_other] = elements[first]
    changed = pair.view(torch.int64)
    gain = _terms(changed[:, 0], one) - terms[one]
    return gain + torch.where(same, 0, _terms(changed[:, 1], other) - terms[other])


def test_digests_see_what_norms_do_not() -> None:
    x = torch.randn(64, 64)
    tensors = [x, -x, x.t(), x.roll(1, 0), x.flip(0), torch.where(x == x.max(), torch.nextafter(x, -x), x), x[:63]]
    digests = {summary.digest for summary in summaries(*tensors)}
    assert len(digests) == len(tensors)
    assert summaries(torch.zeros(2))[0].digest != summaries(torch.zeros(3))[0].digest
    assert summaries(torch.tensor(0.0))[0].digest != summaries(torch.tensor(-0.0))[0].digest


def watching(seen: Callable[[Any], None]) -> Any:
    """A dispatch mode that shows the results of all operations to a function."""

    def dispatch(_: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        seen(found)
        return found

    return type("Watching", (TorchDispatchMode,), {"__torch_dispatch__": dispatch})()


@pytest.mark.parametrize("kernel", ["c", "torch"])
def test_nothing_notices(kernel: str) -> None:
    x = torch.randn(30, 40, requires_grad=True)
    strange = x.detach().to(torch.complex64).conj()
    with torch.inference_mode():
        inferred = torch.ones(3)
    rng, version = torch.get_rng_state(), x._version
    statistics = Statistics(user_hash=lambda t: t.abs().float().sum())
    if kernel == "torch":
        statistics._native = None
    seen: list[object] = []
    with watching(seen.append), torch.autocast("cpu", dtype=torch.bfloat16), torch.device("meta"):
        for tensor in (x, x * 2, x.t(), strange, inferred):
            before = len(seen)
            statistics.measure(tensor)
            assert len(seen) == before
        with torch.inference_mode():
            statistics.measure(x)
    statistics.measure(x)
    found = list(statistics.results().values())
    assert torch.get_rng_state().equal(rng)
    assert x._version == version
    assert x.grad_fn is None
    assert found[0] == found[-1] == found[-2]
    assert found[0].user_hash == pytest.approx(found[0].l1, rel=1e-5)
    assert strange.is_conj()


def test_it_works_in_deterministic_mode_and_from_several_threads() -> None:
    tensors = [torch.full((n + 1,), float(n)) for n in range(200)]
    statistics = Statistics()
    slots: dict[int, int] = {}

    def work(part: range) -> None:
        for n in part:
            slots[n] = statistics.measure(tensors[n])

    torch.use_deterministic_algorithms(True)
    try:
        threads = [threading.Thread(target=work, args=(range(start, 200, 4),)) for start in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        torch.use_deterministic_algorithms(False)
    results = statistics.results()
    assert sorted(slots.values()) == list(range(200))
    assert all(results[slots[n]].l1 == n * (n + 1) for n in range(200))


def test_more_tensors_than_one_buffer_of_rows_holds() -> None:
    found = summaries(*(torch.tensor([n]) for n in range(2500)))
    assert [summary.max for summary in found] == list(range(2500))


def unreadable() -> Iterator[tuple[str, torch.Tensor]]:
    from torch._subclasses.fake_tensor import FakeTensorMode

    yield "sparse", torch.eye(3).to_sparse_csr()
    yield "mkldnn", torch.eye(3).to_mkldnn()
    yield "meta", torch.empty(3, device="meta")
    freed = torch.randn(100)
    freed.untyped_storage().resize_(0)
    yield "no storage", freed
    shrunk = torch.randn(100)
    shrunk.untyped_storage().resize_(40)
    yield "freed", shrunk
    with FakeTensorMode():
        yield "FakeTensor", torch.empty(3)
    yield "not implemented", torch.zeros(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)


@pytest.mark.filterwarnings("ignore:Sparse")
def test_a_sparse_tensor_is_its_values_at_its_places() -> None:
    here, there = (torch.sparse_coo_tensor([places], [1.0, -2.0], (5,)) for places in ([0, 1], [0, 3]))
    statistics = Statistics()
    slots = [statistics.measure(tensor) for tensor in (here, here.clone(), there)]
    one, same, moved = (statistics.results()[slot] for slot in slots)
    assert [statistics.digest(slot) for slot in slots] == [one.digest, same.digest, moved.digest]
    assert (one.l1, one.min, one.numel, one.sketch) == (3.0, -2.0, 2, None)
    assert one == same
    assert moved == one._replace(digest=moved.digest) != one


@pytest.mark.filterwarnings("ignore")
def test_what_has_no_values_says_so() -> None:
    cases = [*unreadable(), ("nested", torch.nested.nested_tensor([torch.ones(2)]))]
    cases.append(("quantized", torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8)))
    statistics = Statistics()
    for reason, tensor in cases:
        with pytest.raises(Unmeasurable, match=reason):
            statistics.measure(tensor)
    assert statistics.results() == {}


def test_it_copies_no_tensor() -> None:
    """Python's own allocations; torch's are bounded by the sizes of chunks."""
    x = torch.randn(1 << 20)
    statistics = Statistics()
    statistics.measure(x)
    tracemalloc.start()
    for _ in range(100):
        statistics.measure(x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 17


def test_the_torch_form_works_in_chunks() -> None:
    from capture.kernels import eager

    x = torch.ones(3, 1 << 19).t()
    storage = x.untyped_storage().data_ptr()
    row = torch.empty(25, dtype=torch.int64)
    sizes: list[int] = []

    def note(found: Any) -> None:
        if isinstance(found, torch.Tensor) and found.untyped_storage().data_ptr() != storage:
            sizes.append(found.numel())

    with watching(note):
        eager.measure(x, row, None, digest=True, sketch=False)
    assert 0 < max(sizes) <= 4 * eager.CHUNK  # the bytes of a chunk


def test_a_users_hash_that_fails_is_left_out_with_one_warning() -> None:
    def hashed(tensor: torch.Tensor) -> Any:
        if tensor.numel() == 2:
            raise ValueError("no pairs")
        return "text" if tensor.numel() == 1 else tensor.numel()

    statistics = Statistics(user_hash=hashed)
    statistics.measure(torch.ones(1))
    with pytest.warns(RuntimeWarning, match="no pairs"):
        statistics.measure(torch.ones(2))
    statistics.measure(torch.ones(2))  # a warning would be an error
    statistics.measure(torch.ones(3))
    assert [summary.user_hash for summary in statistics.results().values()] == ["text", None, None, 3]


@pytest.mark.filterwarnings("ignore:numtui capture:RuntimeWarning")
@pytest.mark.parametrize(
    ("strange", "recorded"),
    [
        (lambda _: sys.exit(3), None),
        (lambda _: 10**10_000, None),
        (lambda _: torch.empty(3, device="meta"), None),
        (lambda _: Strange(), None),
        (lambda t: t.zero_().sum(), 0.0),
        (lambda _: torch.manual_seed(1).initial_seed(), 1),
    ],
)
def test_a_users_hash_neither_ends_nor_changes_the_run(strange: Any, recorded: Any) -> None:
    x, state = torch.ones(3), torch.get_rng_state()
    statistics = Statistics(user_hash=strange)
    statistics.measure(x)
    (found,) = statistics.results().values()
    assert (found.user_hash, found.l1) == (recorded, 3.0)
    assert torch.equal(x, torch.ones(3))
    assert torch.equal(torch.get_rng_state(), state)


class Strange:
    """An object without a text."""

    def __str__(self) -> str:
        raise SystemExit(4)


def test_what_is_not_asked_for_is_absent() -> None:
    (found,) = summaries(torch.ones(3), sketch=False, digest=False)
    assert (found.sketch, found.digest, found.user_hash, found.l1) == (None, None, None, 3.0)


@pytest.mark.parametrize("shape", list(product([1, 3], [2, 5])))
def test_the_tensor_can_change_afterwards(shape: tuple[int, int]) -> None:
    x = torch.ones(shape)
    statistics = Statistics()
    statistics.measure(x)
    x.zero_()
    assert statistics.results()[0].l1 == shape[0] * shape[1]


def test_a_device_that_never_answers_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one whose stream waits for a collective of other ranks."""
    released = threading.Event()
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda _: released.wait())
    statistics = Statistics()
    host = statistics.measure(torch.ones(3))
    assert statistics.wait(0.01), "there is no device yet"
    rows = statistics._devices[torch.device("meta"), 0] = _Rows(torch.device("cpu"))
    rows.take()
    statistics._slots.append((rows, 0, 3, 0))
    assert not statistics.wait(0.01)
    assert list(statistics.results()) == [host]
    released.set()
    assert statistics.wait(60)
    assert list(statistics.results()) == [host, host + 1]


def test_a_thread_that_waits_for_such_a_device_keeps_nothing_from_being_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device takes about a thousand pieces of work; who hands it one more waits, in the middle of a measurement."""
    statistics = Statistics()
    host = statistics.measure(torch.ones(3))
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda _: threading.Event().wait())
    statistics._devices[torch.device("meta"), 0] = _Rows(torch.device("cpu"))
    held, done = threading.Event(), threading.Event()

    def measure() -> None:
        with statistics._lock:
            held.set()
            done.wait()

    threading.Thread(target=measure, daemon=True).start()
    held.wait()
    assert not statistics.wait(0.01)
    assert list(statistics.results()) == [host]
    done.set()
