"""Random graphs as exporters write them, with nodes that ONNX Runtime folds, fuses and removes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Shape = tuple[int, ...]


@dataclass
class Maker:
    """Builds a graph: values by name with their shapes, nodes, initializers."""

    rng: random.Random
    half: bool
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    values: dict[str, Shape] = field(default_factory=dict)
    count: int = 0

    def fresh(self, word: str) -> str:
        """A name in the style of an exporter."""
        self.count += 1
        return self.rng.choice([f"{word}_{self.count}", f"/block/{word}_{self.count}_output_0", f"{word}.{self.count}"])

    def weight(self, shape: Shape) -> str:
        """A new weight, as an initializer or as the value of a Constant node."""
        name = self.fresh("w")
        numbers = np.linspace(0.1, 1.0, max(1, int(np.prod(shape)))).reshape(shape)
        tensor = numpy_helper.from_array(numbers.astype(np.float16 if self.half else np.float32), name)
        return self._keep(tensor, name)

    def numbers(self, values: list[int]) -> str:
        """A constant of int64."""
        name = self.fresh("const")
        return self._keep(numpy_helper.from_array(np.array(values, np.int64), name), name)

    def _keep(self, tensor: onnx.TensorProto, name: str) -> str:
        if self.rng.random() < 0.3:
            self.nodes.append(helper.make_node("Constant", [], [name], self.label(), value=tensor))
        else:
            self.weights.append(tensor)
        return name

    def label(self) -> str:
        """The name of a node, which is often empty."""
        return self.fresh("node") if self.rng.random() < 0.6 else ""

    def node(self, op: str, inputs: list[str], shape: Shape, outputs: int = 1, **attributes: object) -> str:
        """Adds a node. Returns the name of its first output."""
        names = [self.fresh(op.lower()) for _ in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, self.label(), **attributes))
        self.values |= dict.fromkeys(names, shape)
        return names[0]

    def pick(self, rank: int | None = None) -> str | None:
        """An existing value, of this rank if given; recent values are more likely."""
        fits = [name for name, shape in self.values.items() if rank is None or len(shape) == rank]
        return self.rng.choice(fits[-6:]) if fits else None


def elementwise(make: Maker) -> None:
    name = make.pick()
    assert name is not None
    make.node(make.rng.choice(["Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Identity", "Exp"]), [name], make.values[name])


def binary(make: Maker) -> None:
    left = make.pick()
    assert left is not None
    shape = make.values[left]
    same = [name for name, each in make.values.items() if each == shape]
    right = make.rng.choice([*same, make.weight(shape[-1:] if shape else ())])
    make.node(make.rng.choice(["Add", "Mul", "Sub"]), [left, right], shape)


def convolution(make: Maker) -> None:
    name = make.pick(4)
    if name is None:
        return
    batch, channels, height, width = make.values[name]
    out = make.rng.choice([2, 4])
    bias = [make.weight((out,))] if make.rng.random() < 0.5 else []
    shape = (batch, out, height, width)
    found = make.node("Conv", [name, make.weight((out, channels, 3, 3)), *bias], shape, pads=[1, 1, 1, 1])
    if make.rng.random() < 0.5:  # folded into the convolution
        scale = [make.weight((out,)) for _ in range(4)]
        found = make.node("BatchNormalization", [found, *scale], shape)
    if make.rng.random() < 0.5:
        make.node("Relu", [found], shape)


def matrices(make: Maker) -> None:
    name = make.pick(2) or make.pick(3)
    if name is None:
        return
    *front, inner = make.values[name]
    out = make.rng.choice([3, 5, 8])
    found = make.node("MatMul", [name, make.weight((inner, out))], (*front, out))
    if make.rng.random() < 0.6:
        make.node("Add", [found, make.weight((out,))], (*front, out))


def gemm(make: Maker) -> None:
    name = make.pick(2)
    if name is None:
        return
    rows, inner = make.values[name]
    make.node("Gemm", [name, make.weight((6, inner)), make.weight((6,))], (rows, 6), transB=1)


def reshape(make: Maker) -> None:
    name = make.pick()
    assert name is not None
    shape = make.values[name]
    flat = (shape[0], int(np.prod(shape[1:]))) if shape else (1,)
    make.node("Reshape", [name, make.numbers([flat[0], -1] if shape else [1])], flat)


def reshape_by_shape(make: Maker) -> None:
    """What PyTorch writes for `x.view(x.size(0), -1)`; it is folded for static shapes."""
    name = make.pick(4) or make.pick(3)
    if name is None:
        return
    shape = make.values[name]
    sizes = [make.fresh(word) for word in ("shape", "gather", "unsqueeze", "concat")]
    index = make.numbers([0])
    make.nodes += [
        helper.make_node("Shape", [name], [sizes[0]], make.label()),
        helper.make_node("Gather", [sizes[0], index], [sizes[1]], make.label(), axis=0),
        helper.make_node("Concat", [sizes[1], make.numbers([-1])], [sizes[3]], make.label(), axis=0),
    ]
    make.node("Reshape", [name, sizes[3]], (shape[0], int(np.prod(shape[1:]))))


def transpose(make: Maker) -> None:
    name = make.pick(3) or make.pick(2)
    if name is None:
        return
    shape = make.values[name]
    order = list(range(len(shape)))
    make.rng.shuffle(order)
    make.node("Transpose", [name], tuple(shape[at] for at in order), perm=order)


def concat(make: Maker) -> None:
    name = make.pick()
    if name is None or not make.values[name]:
        return
    shape = make.values[name]
    make.node("Concat", [name, name], (shape[0] * 2, *shape[1:]), axis=0)


def softmax(make: Maker) -> None:
    name = make.pick(2) or make.pick(3)
    if name is not None:
        make.node("Softmax", [name], make.values[name], axis=-1)


def split(make: Maker) -> None:
    name = make.pick()
    if name is None or not make.values[name] or make.values[name][0] % 2:
        return
    shape = make.values[name]
    make.node("Split", [name, make.numbers([shape[0] // 2] * 2)], (shape[0] // 2, *shape[1:]), outputs=2, axis=0)


def reduce(make: Maker) -> None:
    name = make.pick(4) or make.pick(3)
    if name is not None:
        shape = make.values[name]
        make.node("ReduceMean", [name], (*shape[:-1], 1), axes=[-1], keepdims=1)


def pool(make: Maker) -> None:
    name = make.pick(4)
    if name is not None:
        make.node("MaxPool", [name], make.values[name], kernel_shape=[3, 3], pads=[1, 1, 1, 1])


def slices(make: Maker) -> None:
    name = make.pick()
    if name is None or not make.values[name] or make.values[name][-1] < 2:
        return
    shape = make.values[name]
    inputs = [name, make.numbers([0]), make.numbers([shape[-1] // 2]), make.numbers([len(shape) - 1])]
    make.node("Slice", inputs, (*shape[:-1], shape[-1] // 2))


def twice(make: Maker) -> None:
    """The same computation twice; ONNX Runtime removes one of the two."""
    name = make.pick()
    assert name is not None
    shape = make.values[name]
    first, second = (make.node("Sqrt", [name], shape) for _ in range(2))
    make.node("Add", [first, second], shape)


def cast(make: Maker) -> None:
    """A cast and its inverse, as mixed precision leaves them."""
    name = make.pick()
    assert name is not None
    shape = make.values[name]
    own, other = (TensorProto.FLOAT16, TensorProto.FLOAT) if make.half else (TensorProto.FLOAT, TensorProto.FLOAT16)
    wide = make.fresh("cast")
    soft = make.fresh("soft")
    make.nodes += [
        helper.make_node("Cast", [name], [wide], make.label(), to=other),
        helper.make_node("Sigmoid", [wide], [soft], make.label()),
    ]
    make.node("Cast", [soft], shape, to=own)


STEPS: tuple[Callable[[Maker], None], ...] = (
    elementwise, binary, convolution, matrices, gemm, reshape, reshape_by_shape, transpose, concat, softmax, split,
    reduce, pool, slices, twice,
)  # fmt: skip
SHAPES: tuple[Shape, ...] = ((1, 3, 16, 16), (2, 3, 8, 8), (4, 12), (1, 300), (2, 5, 6), (7, 4))


def random_model(seed: int, *, half: bool = False, mixed: bool = False) -> onnx.ModelProto:
    """A model of 2 to 25 nodes with one to four inputs, the same for the same seed."""
    make = Maker(random.Random(seed), half)
    rng = make.rng
    kind = TensorProto.FLOAT16 if half else TensorProto.FLOAT
    inputs = {
        f"{rng.choice(['x', 'input', 'data'])}_{at}": rng.choice(SHAPES) for at in range(rng.choice([1, 1, 2, 4]))
    }
    make.values |= inputs
    for name in inputs:  # every input is used
        make.node("Relu", [name], inputs[name])
    for _ in range(rng.randint(1, 14)):
        rng.choice((*STEPS, cast) if mixed else STEPS)(make)
    used = {name for node in make.nodes for name in node.input}
    ends = [name for name in make.values if name not in used]
    if not rng.getrandbits(2):  # an output that other nodes read as well
        ends += [name for name in make.values if name in used and name not in inputs][-1:]
    shown = [helper.make_tensor_value_info(name, kind, make.values[name]) for name in dict.fromkeys(ends)]
    declared = [helper.make_tensor_value_info(name, kind, shape) for name, shape in inputs.items()]
    graph = helper.make_graph(make.nodes, f"graph_{seed}", declared, shown, make.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
