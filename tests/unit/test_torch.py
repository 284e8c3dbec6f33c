"""Operators of PyTorch, as far as they go without a GPU: schemas, tracing, what is refused. The rest: tests/gpu."""

from __future__ import annotations

import ctypes
import logging
import random
import subprocess
import sys
import types
import warnings

import numpy as np
import pytest

from aotcuda.errors import ArgumentError, LaunchError
from aotcuda.runtime import fast as extension
from aotcuda.runtime.fast import torch_guards, torch_layout
from support import manifests

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch")
    import aotcuda.torch

pytestmark = pytest.mark.filterwarnings("default")  # what PyTorch's compilers warn of is their affair
AXPY = [
    "void(float32, float32[::1], float32[::1], float32[::1])",
    "void(float64, float64[::1], float64[::1], float64[::1])",
]


def _addresses():
    """A kernel of an array of which only the address counts, as Triton's have them."""
    record = manifests.kernel("addresses", "void(int64)", names="a")
    record["overloads"][0]["parameters"][0] |= {"type": "*fp32", "kind": "elements", "dtype": "<f4"}
    return record


@pytest.fixture
def kernels(cuda):
    """Packaged kernels, on the stand-in; and no operator of theirs is left when the test ends."""
    yield cuda.package(
        manifests.kernel("axpy", *AXPY, names="axyz"),
        manifests.kernel("scale", "void(int32, int32[::1])", "void(float32, float32[::1])", names="ax"),
        manifests.kernel("numbers", "void(bool, uint8, int64, float16, float64, complex64, float32[:,:])"),
        manifests.kernel("shapes", "void(float32[::1])", "void(float32[::1], float32[::1])"),
        manifests.kernel("pair", "void((float32, float32), float32[::1])"),
        manifests.kernel("strided", "void(float32[:,:])", "void(complex64[:])", "void(float32[:])"),
        _addresses(),
        manifests.kernel("pairs", "void((float32[::1], float32))"),
        manifests.kernel("behind", "void((float32[::1], float32), float32[::1])"),
        manifests.kernel("reads", "void(float32[::1], float32[::1])", readonly=("a",)),
    )
    aotcuda.torch._libraries.clear()


def make(kernel, name="test::op", **options):
    return aotcuda.torch.op(kernel, **{"grid": 1, "block": 64, "name": name, **options})


@pytest.mark.parametrize(
    ("kernel", "options", "schema"),
    [
        ("axpy", {"mutates": ("z",)}, "(float a, Tensor x, Tensor y, Tensor(a3!) z) -> ()"),
        ("axpy", {"outputs": {"z": "x"}}, "(float a, Tensor x, Tensor y) -> Tensor"),
        ("axpy", {"outputs": {"z": "x", "y": "x"}}, "(float a, Tensor x) -> (Tensor, Tensor)"),
        ("axpy", {"mutates": "y", "outputs": {"z": "x"}}, None),
        ("axpy", {"mutates": ("y",), "outputs": {"z": "x"}}, "(float a, Tensor x, Tensor(a2!) y) -> Tensor"),
        ("scale", {"mutates": ("x",)}, "(Scalar a, Tensor(a1!) x) -> ()"),
        (
            "numbers",
            {"mutates": ("g",)},
            "(bool a, SymInt b, SymInt c, float d, float e, complex f, Tensor(a6!) g) -> ()",
        ),
        ("shapes", {"mutates": ("a",), "signature": "void(float32[::1])"}, "(Tensor(a0!) a) -> ()"),
    ],
)
def test_the_schema_is_of_the_packaged_parameters(kernels, kernel, options, schema):
    if schema is None:
        with pytest.raises(ArgumentError, match=r"write \('y',\)"):
            make(getattr(kernels, kernel), **options)
        return
    assert str(make(getattr(kernels, kernel), **options)._schema) == f"test::op{schema}"


def test_the_name_is_the_modules_unless_one_is_given(kernels):
    operator = aotcuda.torch.op(kernels.axpy, forall="z", mutates=("z",))
    assert operator.name() == "mypkg_kernels::axpy"
    with pytest.raises(ArgumentError, match="has an operator mypkg_kernels::axpy already; give this one another name="):
        aotcuda.torch.op(kernels.axpy, forall="z", mutates=("z",))
    with pytest.raises(ArgumentError, match="write 'namespace::name'"):
        make(kernels.axpy, name="axpy", mutates=("z",))


@pytest.mark.parametrize(
    ("kernel", "options", "message"),
    [
        ("axpy", {}, r"say which of its arrays \(x, y, z\) it writes to: mutates=\(...\), or outputs="),
        ("axpy", {"mutates": ("a",)}, "it has no array 'a'"),
        ("axpy", {"mutates": ("zz",)}, "it has no array 'zz'; did you mean z?"),
        ("axpy", {"mutates": ("z",), "outputs": {"z": "x"}}, "z is in mutates and in outputs"),
        ("axpy", {"outputs": {"z": "w"}}, "z cannot be like 'w'"),
        ("axpy", {"outputs": {"z": "z"}}, "z cannot be like 'z'"),
        ("axpy", {"mutates": ("z",), "grid": None, "forall": "n"}, "forall names 'n', which is none of its arguments"),
        ("axpy", {"mutates": ("z",), "signature": "void()"}, r"it has no signature 'void\(\)'; it has void\(float32"),
        ("shapes", {"mutates": ("a",)}, "its signatures differ in the number of arguments"),
        ("pair", {"mutates": ("b",)}, r"a is \(float32, float32\), and operators have no such arguments"),
        ("reads", {"mutates": ("a",)}, "a was compiled as read-only"),
    ],
)
def test_what_does_not_fit_the_kernel_is_refused(kernels, kernel, options, message):
    with pytest.raises(ArgumentError, match=message):
        make(getattr(kernels, kernel), **options)


@pytest.mark.parametrize("options", [{"grid": None}, {"forall": "z"}, {"block": None}])
def test_there_is_one_configuration(kernels, options):
    with pytest.raises(LaunchError, match="either grid= and block=, or forall="):
        make(kernels.axpy, mutates=("z",), **options)


def test_kernels_that_are_launched_otherwise_are_refused(kernels):
    from aotcuda.in_place.kernel import PackagedKernel
    from aotcuda.runtime.grid_kernel import GridKernel

    for kind in (GridKernel, PackagedKernel, kernels.axpy[1, 1]):
        kernel = kind("axpy", kernels.axpy.loader) if isinstance(kind, type) else kind
        with pytest.raises(ArgumentError, match=r"aotcuda\.torch\.op takes kernels of modules that the build made"):
            make(kernel, mutates=("z",))


def test_tensors_that_are_on_no_gpu_are_refused(kernels):
    x = torch.zeros(4)
    with pytest.raises(
        ArgumentError, match=r"axpy runs on CUDA GPUs alone, and its tensors are on cpu: move them there"
    ):
        make(kernels.axpy, outputs={"z": "x"})(1.0, x, x)


def test_traced_it_is_one_node(kernels):
    operator = make(kernels.axpy, outputs={"z": lambda a, x, y: x.new_empty(x.shape)})
    graphs = []

    def backend(graph, _example):
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    with pytest.raises(ArgumentError, match="on cpu"):
        torch.compile(lambda x: operator(2.0, x * 2, x) + 1, fullgraph=True, backend=backend)(torch.zeros(4))
    (graph,) = graphs
    assert [node.target for node in graph.graph.nodes].count(operator) == 1


def test_exported_it_is_one_node(kernels):
    operator = make(kernels.axpy, outputs={"z": "x"})

    class Model(torch.nn.Module):
        def forward(self, x):
            return operator(2.0, x, x) + 1

    exported = torch.export.export(Model(), (torch.zeros(4),))
    assert [node.target for node in exported.graph.nodes].count(operator) == 1


def test_shapes_of_cudas_tensors_are_known_without_a_gpu(kernels):
    from torch._subclasses.fake_tensor import FakeTensorMode

    operator = make(kernels.axpy, outputs={"z": "x"})
    in_place = make(kernels.scale, name="test::scale", mutates=("x",))
    with FakeTensorMode():
        x = torch.empty(4, device="cuda")
        made = operator(2.0, x, x)
        assert (made.shape, made.dtype, made.device.type) == ((4,), torch.float32, "cuda")
        assert in_place(2, x) is None


@pytest.mark.parametrize(("dtype", "shape"), [("int8", (4,)), ("float32", (2, 2))])
def test_what_is_not_packaged_is_refused_while_tracing(kernels, dtype, shape):
    from torch._subclasses.fake_tensor import FakeTensorMode

    operator = make(kernels.axpy, outputs={"z": "x"})
    logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)
    with FakeTensorMode(), pytest.raises(ArgumentError, match=f"no packaged signature takes tensors {dtype}"):
        x = torch.empty(shape, dtype=getattr(torch, dtype), device="cuda")
        operator(2.0, x, x)


def test_gradients_can_be_registered(kernels):
    operator = make(kernels.axpy, outputs={"z": "x"})
    torch.library.register_autograd(operator, lambda ctx, gradient: (None, gradient, gradient))
    assert torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), "Autograd")


def on_the_cpu(operator, function):
    """The operator with a kernel for the CPU as well: what is around the launch is the same there."""
    aotcuda.torch._libraries[operator.name()].impl(operator.name().partition("::")[2], function, "CPU")
    return operator


def test_pytorchs_own_checks_pass(kernels):
    new = on_the_cpu(make(kernels.axpy, outputs={"z": "x"}), lambda a, x, y: a * x + y)

    def add(a, x, y, z):
        z.copy_(a * x + y)

    in_place = on_the_cpu(make(kernels.axpy, name="test::in_place", mutates=("z",)), add)
    x = torch.linspace(0, 1, 8)
    assert {*torch.library.opcheck(new, (2.0, x, x)).values()} == {"SUCCESS"}
    assert {*torch.library.opcheck(in_place, (2.0, x, x, x.clone())).values()} == {"SUCCESS"}

    @torch.compile(fullgraph=True, backend="aot_eager", dynamic=True)
    def step(x, z):
        in_place(3.0, new(2.0, x * 2, x).sin(), x, z)
        return z + 1

    torch._dynamo.reset()
    for count in (8, 5):
        x = torch.linspace(0, 1, count)
        torch.testing.assert_close(step(x, torch.empty(count)), 3 * (5 * x).sin() + x + 1)


def test_gradients_are_checked_by_pytorch(kernels):
    operator = make(kernels.axpy, name="test::gradients", outputs={"z": "x"})
    on_the_cpu(operator, lambda a, x, y: a * x + y)
    torch.library.register_autograd(operator, lambda ctx, gradient: (None, 2 * gradient, gradient))
    x = torch.linspace(0, 1, 8, dtype=torch.float64, requires_grad=True)
    assert {*torch.library.opcheck(operator, (2.0, x, x)).values()} == {"SUCCESS"}
    assert torch.autograd.gradcheck(lambda x: operator(2.0, x, x), (x,))


def test_aotcuda_imports_no_pytorch():
    code = "import aotcuda, sys; aotcuda.load; print([name for name in sys.modules if name in ('torch', 'jax')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.complex64])
def test_the_bits_of_lazy_tensors_are_where_they_were_found(dtype):
    base, pointer, word, bits = torch_layout.find_bits()
    number = torch.ones(4, 4, dtype=dtype)
    views = [number, number[::2], number.T, torch._neg_view(number), torch.nn.Parameter(torch.ones(2)), number.conj()]
    if dtype.is_complex:
        views += [number.conj().imag, number.conj().real, number.conj().resolve_conj(), number.conj().conj()]
    for view in views:
        assert isinstance(view, base)
        implementation = ctypes.c_void_p.from_address(id(view) + pointer).value
        found = ctypes.c_uint64.from_address(implementation + word).value
        assert bool(found & bits) is (view.is_neg() or view.is_conj())


def _as_it_lies_in_memory(tensor, found):
    """The address, the shape, the strides and DLPack's code and bits; None where the extension would ask."""
    storage, data, flag, offset, sizes, strides, dtype, codes, class_, keys, optional = found
    _, pointer, word, _ = torch_layout.find_bits()

    def at(address, kind=ctypes.c_int64):
        return kind.from_address(address).value

    implementation = at(id(tensor) + pointer)
    if at(implementation) != class_ or (at(implementation + word) ^ keys) & ~optional:
        return None
    ndim, number, kept = (
        at(implementation + sizes),
        at(implementation + dtype, ctypes.c_uint16),
        at(implementation + storage),
    )
    if ndim > torch_layout.DIMENSIONS or not kept or at(kept + flag, ctypes.c_uint8) or not codes[2 * number + 1]:
        return None
    shape, steps = (
        tuple(at(implementation + place + 8 * axis) for axis in range(ndim)) for place in (sizes + 8, strides)
    )
    address = at(kept + data) + at(implementation + offset) * codes[2 * number + 1] // 8
    return address if 0 not in shape else 0, shape, steps, *codes[2 * number : 2 * number + 2]


def _plain():
    number = torch.arange(240, dtype=torch.float32)
    cube = number.view(4, 5, 12)
    yield from (number, number[3:], number[::2], number[:0], number[7], cube, cube.T if cube.dim() == 2 else cube.mT)
    yield from (cube[1:, ::2, 3:9], cube.permute(2, 0, 1), cube.expand(2, 4, 5, 12), cube[:, :0], torch.empty(0, 3))
    yield from (torch.nn.Parameter(cube), cube.clone().requires_grad_(), (cube.clone().requires_grad_() * 2)[1])
    yield from (
        cube.detach(),
        torch.empty(1, 8, 4, 4).to(memory_format=torch.channels_last),
        torch.from_numpy(number.numpy()),
    )
    yield from (
        torch.zeros(4, 4, dtype=dtype)[1:] for dtype in (torch.bool, torch.bfloat16, torch.complex128, torch.uint16)
    )
    with torch.inference_mode():
        yield torch.ones(3)[1:]
    resized = torch.ones(9)
    resized.untyped_storage().resize_(0)
    yield resized


def _others():
    number = torch.ones(4, 4)
    yield from (
        torch._neg_view(number),
        torch.ones(2, dtype=torch.complex64).conj(),
        number.to_sparse(),
        number.to_sparse_csr(),
    )
    yield from (
        torch.ones(2, device="meta"),
        torch.ones((2,) * 6),
        torch.quantize_per_tensor(number, 0.1, 0, torch.qint8),
    )
    yield from (torch._lazy_clone(number), number, torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]))
    yield from (torch.ones(2, dtype=torch.float8_e5m2), torch._efficientzerotensor(3))
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        yield torch.ones(4)


def test_what_tensors_tell_is_where_it_was_found_and_others_are_asked():
    found = torch_layout.find(torch_layout.find_bits(), torch.ones(2))
    assert found is not None
    for tensor in _plain():
        item = tensor.element_size()
        told = _as_it_lies_in_memory(tensor, found)
        assert told is not None, tensor
        assert told[:3] == (tensor.data_ptr(), tuple(tensor.shape), tensor.stride()), tensor
        assert told[4] == 8 * item
    for tensor in _others():
        assert _as_it_lies_in_memory(tensor, found) is None, tensor

    seen = []
    torch.func.vmap(lambda tensor: seen.append(_as_it_lies_in_memory(tensor, found)) or tensor * 2)(torch.ones(3, 3))
    torch.func.functionalize(lambda tensor: seen.append(_as_it_lies_in_memory(tensor, found)) or tensor * 2)(
        torch.ones(3)
    )
    assert seen == [None, None]


def test_places_are_found_with_a_tensor_on_a_gpu_alone(monkeypatch):
    monkeypatch.setattr(torch_layout, "_asked", [])
    told = []
    module = types.SimpleNamespace(
        set_torch_bits=lambda *_bits: None, set_torch_layout=lambda *found: told.append(found)
    )
    assert not torch_layout.tell(module, torch.ones(2))
    assert not torch_layout.tell(module, torch.ones(2, device="meta"))
    assert told == []
    on_gpu = types.SimpleNamespace(is_cuda=True, device=torch.device("cpu"))
    assert torch_layout.tell(module, on_gpu)
    assert torch_layout.tell(module, on_gpu)
    assert len(told) == 1


def test_what_is_found_in_inference_mode_is_what_is_found_outside():
    bits = torch_layout.find_bits()
    found = torch_layout.find(bits, torch.ones(2))
    with torch.inference_mode():
        assert torch_layout.find_bits() == bits
        assert torch_layout.find(bits, torch.ones(2)) == found


def test_dtypes_have_the_numbers_that_were_found():
    codes = torch_layout.find(torch_layout.find_bits(), torch.ones(2))[7]
    found = {torch_layout.arrays.element((codes[at], codes[at + 1])) for at in range(0, len(codes), 2) if codes[at + 1]}
    assert found == {torch_layout.arrays.element(text) for text in torch_layout.arrays.TORCH.values()}


@pytest.fixture
def guards(monkeypatch):
    """What makes guards, and tensors of the CPU that pass for a GPU's."""
    monkeypatch.setattr(torch_guards, "_tried", [])
    monkeypatch.setattr(extension, "_found", [None])
    monkeypatch.setattr(torch.Tensor, "is_cuda", True, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda _device: 0, raising=False)
    found = torch_guards.usable()
    assert found is not None
    return found


@pytest.fixture
def questions(monkeypatch):
    """The tensors that were asked whether they are lazily negated, which is asked of each that is asked anything."""
    asked = []
    monkeypatch.setattr(
        torch.Tensor, "is_neg", lambda self: asked.append(self) or torch._C.TensorBase.is_neg(self), raising=False
    )
    return asked


def _tensors():
    """Plain tensors of two elements each, no two of which are alike to a launch."""
    ones = torch.ones(2, dtype=torch.complex64)
    return [
        torch.ones(2),
        torch.ones(4)[::2],
        torch.ones(1)[:0],
        torch.ones(1),
        torch.ones(3),
        torch.ones(2, 1),
        torch.ones(1, 2),
        torch.ones(()),
        torch.ones(2, dtype=torch.float64),
        torch.ones(2, dtype=torch.int32),
        torch._neg_view(torch.ones(2)),
        ones,
        ones.conj(),
        torch._neg_view(ones),
        torch._neg_view(ones.conj()),
        torch.nn.Parameter(torch.ones(2), requires_grad=False),
        torch.ones(2, device="meta"),
        torch.ones(2).to_sparse(),
    ]


def _form(tensor):
    """All but the sizes and strides of a tensor."""
    told = [tensor.dtype, tensor.device, tensor.layout, tensor.ndim, tensor.is_conj()]
    return type(tensor), *told, torch._C.TensorBase.is_neg(tensor)


def test_a_guard_tells_each_tensor_from_each_other_one(guards):
    tensors = _tensors()
    for at, tensor in enumerate(tensors[:-1]):
        check, form = guards.make((tensor,))
        assert [check(other, guards.lazy) for other in tensors] == [other == at for other in range(len(tensors))]
        assert [form(other, guards.lazy) for other in tensors] == [_form(other) == _form(tensor) for other in tensors]


def test_a_guard_for_one_tensor_twice_is_for_such_alone(guards):
    x, y, z = torch.ones(2), torch.ones(2), torch.ones(2)
    (twice, _), (apart, _) = guards.make((x, y, y)), guards.make((x, y, z))
    assert [twice(*args, guards.lazy) for args in ((x, y, y), (y, z, z), (x, y, z), (x, x, y))] == [True, True] + [
        False
    ] * 2
    assert [apart(*args, guards.lazy) for args in ((x, y, z), (z, x, y), (x, y, y), (x, x, x))] == [True, True] + [
        False
    ] * 2
    always, form = guards.make((x, x, x))
    assert [always(*args, guards.lazy) for args in ((y, y, y), (x, y, y))] == [True, False]
    assert form is None


@pytest.mark.parametrize("key", ["Negative", "Conjugate"])
def test_where_lazy_views_are_left_alone_no_guard_holds_and_none_is_made(guards, key):
    (check, form), keys = guards.make((torch.ones(2),)), torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))
    assert check(torch.ones(2), guards.lazy)
    with torch._C._ExcludeDispatchKeyGuard(keys):
        assert not check(torch.ones(2), guards.lazy)
        assert not form(torch.ones(2), guards.lazy)
        assert guards.make((torch.ones(2),)) is None
    with torch._C._IncludeDispatchKeyGuard(getattr(torch._C.DispatchKey, key)):
        assert not check(torch.ones(2), guards.lazy)
        assert not form(torch.ones(2), guards.lazy)
    assert check(torch.ones(2), guards.lazy)


@pytest.mark.parametrize(
    "lie",
    [
        lambda *_tensors, **_dimensions: types.SimpleNamespace(check=lambda *_others: True),
        lambda *_tensors, **_dimensions: types.SimpleNamespace(check=lambda *_others: False),
        lambda *tensors, **_dimensions: types.SimpleNamespace(
            check=lambda *others: [type(other) for other in others] == [type(tensor) for tensor in tensors]
        ),
        lambda *_tensors: None,
    ],
)
def test_a_pytorch_whose_guards_answer_otherwise_is_asked(guards, kernels, monkeypatch, questions, lie):
    monkeypatch.setattr(torch_guards, "_tried", [])
    monkeypatch.setattr(torch._C._dynamo.guards, "TensorGuards", lie)
    assert torch_guards.usable() is None
    for _ in range(4):
        kernels.scale[1, 64](2.0, torch.ones(4))
    assert len(questions) == 4


def test_tensors_like_the_last_ones_are_asked_for_their_addresses_alone(guards, kernels, cuda, general, questions):
    del guards
    run = kernels.axpy[1, 64]
    tensors = [torch.full((4,), float(number)) for number in range(6)]
    for at in range(4):
        run(2.0, *tensors[at : at + 3])
    assert len(general) < 4
    asked = len(questions)
    run(2.0, *tensors[3:])
    assert len(questions) == asked
    words = [int.from_bytes(cuda.parameters()[at : at + 8], "little") for at in range(8, 176, 8)]
    assert [tensor.data_ptr() in words for tensor in tensors] == [False] * 3 + [True] * 3


def test_a_tensor_that_has_become_another_is_another(guards, kernels, cuda):
    del guards
    run, x = kernels.scale[1, 64], torch.ones(4)
    for _ in range(4):
        run(2.0, x)
    for change in (lambda: x.resize_(6), lambda: setattr(x, "data", torch.ones(3))):
        change()
        run(2.0, x)
        sent = cuda.parameters()
        items, itemsize, address = (int.from_bytes(sent[at : at + 8], "little") for at in (24, 32, 40))
        assert (items, itemsize, address) == (x.numel(), 4, x.data_ptr())
    for change in (
        lambda: x.set_(torch.ones(8)[::2]),
        lambda: setattr(x, "data", torch.ones(4, dtype=torch.float64)),
        lambda: setattr(x, "data", torch._neg_view(torch.ones(4))),
    ):
        change()
        with pytest.raises(ArgumentError):
            run(2.0, x)


def test_a_subclass_is_asked(guards, kernels, questions):
    class Mine(torch.Tensor):
        def numel(self):
            return 3

    del guards
    tensor = torch.ones(4).as_subclass(Mine)
    for _ in range(4):
        asked = len(questions)
        kernels.scale[1, 64](2.0, tensor)
        assert len(questions) > asked


class _Flushing:
    """An array that changes others as it is asked for its interface, as one with work of its own to do first may."""

    def __init__(self, change):
        self.change = change

    @property
    def __cuda_array_interface__(self):
        self.change()
        return {"data": (4096, False), "typestr": "<f4", "shape": (4,), "version": 3}


class _Reading(np.float32):
    """A number that changes other arguments as it is read."""

    change = staticmethod(lambda: None)

    def __float__(self):
        self.change()
        return 2.0


class _Measured(torch.Tensor):
    """A tensor that changes others as it is asked for its layout."""

    change = staticmethod(lambda: None)

    def is_contiguous(self):
        self.change()
        return super().is_contiguous()


@pytest.mark.parametrize("kind", ["array", "number", "tensor", "member"])
def test_a_tensor_that_an_argument_before_it_changes_is_sent_as_it_is_then(guards, kernels, cuda, general, kind):
    y, sizes = torch.ones(8), [8]
    del guards

    def change():
        y.resize_(sizes[-1])

    if kind == "number":
        first, run, at = _Reading(1.0), kernels.scale[1, 64], 24
        first.change = change
    elif kind == "tensor":
        first, run, at = torch.ones(4).as_subclass(_Measured), kernels.shapes[1, 64], 72
        first.change = change
    else:
        first, run, at = _Flushing(change), kernels.shapes[1, 64], 72
    if kind == "member":
        first, run, at = (first, 1.0), kernels.behind[1, 64], 80
    for _ in range(8):
        run(first, y)
    assert len(general) < 4
    for size in (2, 5):
        sizes.append(size)
        run(first, y)
        sent = cuda.parameters()
        assert [int.from_bytes(sent[word : word + 8], "little") for word in (at, at + 16)] == [size, y.data_ptr()]


def test_tensors_before_an_argument_that_may_change_them_have_a_guard(guards, kernels, general, questions):
    del guards
    first, last = torch.ones(4), _Flushing(lambda: None)
    for _ in range(6):
        kernels.shapes[1, 64](first, last)
    assert len(general) < 4
    asked = len(questions)
    kernels.shapes[1, 64](first, last)
    assert len(questions) == asked
    for _ in range(6):
        kernels.shapes[1, 64](last, first)
    assert len(questions) > asked


@pytest.mark.parametrize(("sizes", "most"), [(range(1, 1000), 2), ([3, 4] * 500, 20), ([3] * 300 + [4] * 300, 3)])
def test_guards_are_made_where_sizes_stay_and_seldom_where_they_do_not(
    guards, kernels, monkeypatch, questions, sizes, most
):
    made = []
    make = torch_guards.Guards.make
    monkeypatch.setattr(torch_guards.Guards, "make", lambda self, tensors: made.append(tensors) or make(self, tensors))
    del guards
    run = kernels.scale[1, 64]
    for size in sizes:
        run(2.0, torch.ones(size))
    assert 0 < len(made) <= most
    assert len(questions) < 10  # of tensors of other sizes these alone are asked


def test_launches_with_a_guard_send_what_the_general_path_sends(guards, kernels, cuda):
    del guards
    draw = random.Random(7)
    loaded = kernels.__aotcuda__._loader.ready()
    tensors = [*_tensors(), torch.ones(2, 3), torch.ones(3, 2).T, torch.ones(4, 6)[::2, ::3], torch.ones(1, 4)[:, ::2]]
    few = [torch.ones(2), torch.ones(2), torch.ones(3), torch.ones(4)[::2], torch._neg_view(torch.ones(2))]
    launched = 0
    for name, others in (("axpy", (1.5,)), ("shapes", ()), ("strided", ()), ("addresses", ()), ("pairs", ())):
        run = getattr(kernels, name)[1, 64]
        count = {"axpy": 3, "shapes": 2}.get(name, 1)
        for number in range(400):
            pool = few if number % 100 < 80 else tensors
            args = (*others, *draw.choices(pool, k=count))
            args = ((args[0], 1.0),) if name == "pairs" else args
            try:
                overload, slot, *_ = loaded.select(name, args, 0)
            except ArgumentError:
                with pytest.raises(ArgumentError):
                    run(*args)
                continue
            expected = bytes(slot.buffer)[: overload.size]
            overload.slots.append(slot)
            run(*args)
            launched += 1
            assert cuda.parameters() == expected
            assert cuda.launches()[-1]["kernel"] == overload.record["symbol"]
    assert launched > 1000
