"""Operators of PyTorch without a GPU: schemas, tracing and errors. tests/gpu has the launches."""

from __future__ import annotations

import logging
import random
import warnings

import pytest

from aotcuda.errors import ArgumentError, LaunchError
from aotcuda.runtime.launch.arguments.argument_layout import BLOCK
from support import manifests

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch")
    import aotcuda.torch
    from support import tensors

pytestmark = pytest.mark.filterwarnings("default")  # PyTorch's compilers warn
AXPY = [
    "void(float32, float32[::1], float32[::1], float32[::1])",
    "void(float64, float64[::1], float64[::1], float64[::1])",
]


def _addresses():
    """Return a kernel with an array of which only the address is passed, as in Triton's kernels."""
    record = manifests.kernel("addresses", "void(int64)", names="a")
    record["overloads"][0]["parameters"][0] |= {"type": "*fp32", "kind": "elements", "dtype": "<f4"}
    return record


@pytest.fixture
def kernels(cuda):
    """Return packaged kernels on the stand-in; remove their operators after the test."""
    yield cuda.package(
        manifests.kernel("axpy", *AXPY, names="axyz"),
        manifests.kernel("scale", "void(int32, int32[::1])", "void(float32, float32[::1])", names="ax"),
        manifests.kernel("numbers", "void(bool, uint8, int64, float16, float64, complex64, float32[:,:])"),
        manifests.kernel("shapes", "void(float32[::1])", "void(float32[::1], float32[::1])"),
        manifests.kernel("pair", "void((float32, float32), float32[::1])"),
        manifests.kernel("strided", "void(float32[:,:])", "void(complex64[:])", "void(float32[:])"),
        _addresses(),
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
def test_the_schema_follows_the_packaged_parameters(kernels, kernel, options, schema):
    if schema is None:
        with pytest.raises(ArgumentError, match=r"write \('y',\)"):
            make(getattr(kernels, kernel), **options)
        return
    assert str(make(getattr(kernels, kernel), **options)._schema) == f"test::op{schema}"


def test_an_operator_has_the_name_of_the_module(kernels):
    operator = aotcuda.torch.op(kernels.axpy, forall="z", mutates=("z",))
    assert operator.name() == "mypkg_kernels::axpy"
    with pytest.raises(ArgumentError, match="has an operator mypkg_kernels::axpy already; give this one another name="):
        aotcuda.torch.op(kernels.axpy, forall="z", mutates=("z",))
    with pytest.raises(ArgumentError, match="write 'namespace::name'"):
        make(kernels.axpy, name="axpy", mutates=("z",))


@pytest.mark.parametrize(
    ("kernel", "options", "message"),
    [
        ("axpy", {}, r"name the arrays that it writes to \(it has x, y, z\): mutates=\(...\), or outputs="),
        ("axpy", {"mutates": ("a",)}, "it has no array 'a'"),
        ("axpy", {"mutates": ("zz",)}, "it has no array 'zz'; did you mean z?"),
        ("axpy", {"mutates": ("z",), "outputs": {"z": "x"}}, "z is in mutates and in outputs"),
        ("axpy", {"outputs": {"z": "w"}}, "z cannot be like 'w'"),
        ("axpy", {"outputs": {"z": "z"}}, "z cannot be like 'z'"),
        ("axpy", {"mutates": ("z",), "grid": None, "forall": "n"}, "forall names 'n', which is none of its arrays: x"),
        ("axpy", {"mutates": ("z",), "grid": None, "forall": "a"}, "forall names 'a', which is none of its arrays: x"),
        ("axpy", {"mutates": ("z",), "signature": "void()"}, r"it has no signature 'void\(\)'; it has void\(float32"),
        ("shapes", {"mutates": ("a",)}, "its signatures differ in the number of arguments"),
        ("pair", {"mutates": ("b",)}, r"a is \(float32, float32\), and operators have no such arguments"),
        ("reads", {"mutates": ("a",)}, "a was compiled as read-only"),
    ],
)
def test_wrong_options_are_refused(kernels, kernel, options, message):
    with pytest.raises(ArgumentError, match=message):
        make(getattr(kernels, kernel), **options)


@pytest.mark.parametrize("options", [{"grid": None}, {"forall": "z"}, {"block": None}])
def test_grid_and_forall_exclude_each_other(kernels, options):
    with pytest.raises(LaunchError, match="either grid= and block=, or forall="):
        make(kernels.axpy, mutates=("z",), **options)


def test_other_kinds_of_kernels_are_refused(kernels):
    from aotcuda.integrations.in_place.kernel import PackagedKernel
    from aotcuda.runtime.launch.grid_kernel import GridKernel

    for kind in (GridKernel, PackagedKernel, kernels.axpy[1, 1]):
        kernel = kind("axpy", kernels.axpy.images) if isinstance(kind, type) else kind
        with pytest.raises(ArgumentError, match=r"aotcuda\.torch\.op needs a kernel of a module that the build made"):
            make(kernel, mutates=("z",))


@pytest.mark.parametrize("by", ["compile", "export"])
def test_a_traced_operator_is_one_node(kernels, by):
    operator = make(kernels.axpy, outputs={"z": lambda a, x, y: x.new_empty(x.shape)})
    graphs = []

    class Model(torch.nn.Module):
        def forward(self, x):
            return operator(2.0, x * 2, x) + 1

    def backend(graph, _example):
        graphs.append(graph)
        return graph

    if by == "export":
        graphs.append(torch.export.export(Model(), (torch.zeros(4),)))
    else:
        torch._dynamo.reset()
        with pytest.raises(
            ArgumentError, match="axpy runs on CUDA GPUs alone, and its tensors are on cpu; move them to a GPU"
        ):
            torch.compile(Model(), fullgraph=True, backend=backend)(torch.zeros(4))
    assert [node.target for node in graphs[0].graph.nodes].count(operator) == 1


def test_shapes_of_fake_cuda_tensors_are_known(kernels):
    from torch._subclasses.fake_tensor import FakeTensorMode

    operator = make(kernels.axpy, outputs={"z": "x"})
    in_place = make(kernels.scale, name="test::scale", mutates=("x",))
    with FakeTensorMode():
        x = torch.empty(4, device="cuda")
        result = operator(2.0, x, x)
        assert (result.shape, result.dtype, result.device.type) == ((4,), torch.float32, "cuda")
        assert in_place(2, x) is None


@pytest.mark.parametrize(("dtype", "shape"), [("int8", (4,)), ("float32", (2, 2))])
def test_an_unpackaged_signature_is_refused_while_tracing(kernels, dtype, shape):
    from torch._subclasses.fake_tensor import FakeTensorMode

    operator = make(kernels.axpy, outputs={"z": "x"})
    logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)
    with FakeTensorMode(), pytest.raises(ArgumentError, match=f"no packaged signature takes tensors {dtype}"):
        x = torch.empty(shape, dtype=getattr(torch, dtype), device="cuda")
        operator(2.0, x, x)


def on_the_cpu(operator, function):
    """Return the operator with a kernel for the CPU too, to test everything but the launch."""
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


@pytest.fixture
def on_a_gpu(path, monkeypatch):
    """Let tensors of the CPU count as tensors of a GPU."""
    monkeypatch.setattr(torch.Tensor, "is_cuda", True, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda _device: 0, raising=False)


class Mine(torch.Tensor):
    """A subclass that overrides a method, so that its tensors are read by their attributes."""

    def stride(self):
        return super().stride()


def mine(tensor):
    return tensor.as_subclass(Mine)


@pytest.mark.usefixtures("on_a_gpu")
@pytest.mark.parametrize("launched", [0, 4], ids=["first", "later"])
@pytest.mark.parametrize(("make", "message"), tensors.REFUSED.values(), ids=tensors.REFUSED)
def test_tensors_without_plain_memory_are_refused(kernels, cuda, make, message, launched):
    for count in range(launched):
        kernels.strided[1, 64](mine(torch.ones(2 + count, dtype=torch.complex64 if count % 2 else torch.float32)))
    for _ in range(3):
        with pytest.raises(ArgumentError, match=message):
            kernels.strided[1, 64](make("cpu"))
    for name in ("conjugate", "resized", "resized view", "resized rows"):
        make, message = tensors.REFUSED[name]
        with pytest.raises(ArgumentError, match=message):
            kernels.strided[1, 64](mine(make("cpu")))
    assert len(cuda.launches()) == launched


@pytest.mark.usefixtures("on_a_gpu")
def test_tensors_of_function_transforms_are_refused(kernels, cuda):
    def launch(tensor):
        with pytest.raises(ArgumentError, match=r"cannot be read|no memory"):
            kernels.strided[1, 64](tensor)
        return tensor * 2

    torch.func.vmap(launch)(torch.ones(2, 3))
    torch.func.functionalize(launch)(torch.ones(3))
    assert cuda.launches() == []


@pytest.mark.usefixtures("on_a_gpu")
def test_launches_send_what_the_general_path_selects(kernels, cuda):
    draw = random.Random(7)
    loaded = kernels.__aotcuda__._images.ready()
    others = [torch.ones(1, 2), torch.ones(()), torch.ones(2, dtype=torch.float64), torch.ones(2, dtype=torch.int32)]
    others += [tensors.complexes("cpu"), tensors.complexes("cpu").conj(), torch.ones(3)[3:]]
    pool = [mine(tensor) for tensor in [*(make("cpu") for make in tensors.LAUNCHED.values()), *others]]
    launched = 0
    for name, scalars, count in (("axpy", (1.5,), 3), ("shapes", (), 2), ("strided", (), 1), ("addresses", (), 1)):
        run = getattr(kernels, name)[1, 64]
        for number in range(200):
            args = (*scalars, *draw.choices(pool[:2] if number % 100 < 70 else pool, k=count))
            try:
                overload, slot, *_ = loaded.select(name, args, 0)
            except ArgumentError:
                with pytest.raises(ArgumentError):
                    run(*args)
                continue
            expected = bytes(slot.buffer)[BLOCK : BLOCK + overload.size]
            overload.slots.append(slot)
            run(*args)
            launched += 1
            assert cuda.parameters() == expected
            assert cuda.launches()[-1]["kernel"] == overload.record["symbol"]
    assert launched > 400
