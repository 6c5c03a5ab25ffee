"""What a parallel training step is: its network, its way, the GPUs and the images. The rules that limit it, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from kernels.i18n import mark, tr
from kernels.model.program import RuleError
from kernels.training.networks import NETWORKS, Network, attention_rules
from kernels.training.step import OPTIMIZERS

DATA, TENSOR, GPIPE, ONE_F_ONE_B = "data", "tensor", "gpipe", "1f1b"
ZERO_1, ZERO_2, ZERO_3 = "zero1", "zero2", "zero3"
WAYS: Mapping[str, str] = {
    DATA: mark("data parallel"),
    TENSOR: mark("tensor parallel"),
    GPIPE: mark("pipeline, GPipe"),
    ONE_F_ONE_B: mark("pipeline, 1F1B"),
    ZERO_1: mark("sharded state (ZeRO 1)"),
    ZERO_2: mark("sharded state and gradients (ZeRO 2)"),
    ZERO_3: mark("sharded state, gradients, weights (ZeRO 3)"),
}
PIPELINES = (GPIPE, ONE_F_ONE_B)
ZERO: Mapping[str, int] = {DATA: 0, ZERO_1: 1, ZERO_2: 2, ZERO_3: 3}  # what each stage of ZeRO shards, cumulative
BUCKET_BYTES = 65_536
# Pairs of fully connected layers: the first is split by its outputs (columns), the second by its inputs (rows).
PAIRS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "lenet5": (("fc1", "fc2"),),
    "residual": (),
    "transformer": tuple(
        (f"{block} {first}", f"{block} {second}")
        for block in ("block1", "block2")
        for first, second in (("qkv", "out"), ("fc1", "fc2"))
    ),
}


@dataclass(frozen=True)
class Plan:
    """A training step of `batch` images on several GPUs. `micro` is the number of micro-batches of a pipeline, `bucket_bytes`
    the least bytes of gradients that are reduced together. RuleError names the rule that a value breaks."""

    network: str
    way: str = DATA
    gpus: int = 4
    batch: int = 256
    micro: int = 4
    bucket_bytes: int = BUCKET_BYTES
    optimizer: str = "sgd"

    def __post_init__(self):
        for name, known in (("network", NETWORKS), ("way", WAYS), ("optimizer", OPTIMIZERS)):
            if (got := getattr(self, name)) not in known:
                raise RuleError(
                    tr("{name} must be one of {known}, got {got}", name=name, known=", ".join(known), got=got)
                )
        for name in ("gpus", "batch", "micro", "bucket_bytes"):
            if (got := getattr(self, name)) < 1:
                raise RuleError(tr("{name} must be 1 or more, got {got}", name=name, got=got))
        for rule in (*_RULES.get(self.way, _data_rules)(self), *_attention_rules(self)):
            raise RuleError(rule)

    @property
    def layers(self) -> Network:
        return NETWORKS[self.network]

    @property
    def zero(self) -> int:
        """Returns the stage of ZeRO, 0 for none."""
        return ZERO.get(self.way, 0)

    @property
    def images(self) -> int:
        """Returns the images that go through one GPU's kernels at a time."""
        if self.way in PIPELINES:
            return self.batch // self.micro
        return self.batch if self.way == TENSOR else self.batch // self.gpus


def _data_rules(plan: Plan) -> Iterator[str]:
    if plan.batch % plan.gpus:
        yield tr(
            "{batch} images cannot be split equally over {gpus} GPUs: batch must be a multiple of GPUs",
            batch=plan.batch,
            gpus=plan.gpus,
        )


def _tensor_rules(plan: Plan) -> Iterator[str]:
    pairs = PAIRS[plan.network]
    if not pairs:
        yield tr(
            "the {network} has no two fully connected layers in a row, so tensor parallel has nothing to split",
            network=tr(plan.layers.title),
        )
    layers = {layer.name: layer for layer in plan.layers.layers}
    for layer in layers.values():
        heads = layer.options.get("heads", plan.gpus)
        if heads % plan.gpus:
            yield tr(
                "{layer} has {heads} heads, which {gpus} GPUs cannot share equally",
                layer=layer.name,
                heads=heads,
                gpus=plan.gpus,
            )
    for column, _ in pairs:
        outputs = layers[column].options["N"]
        if outputs % plan.gpus:
            yield tr(
                "{layer} has {outputs} outputs, which {gpus} GPUs cannot share equally",
                layer=column,
                outputs=outputs,
                gpus=plan.gpus,
            )


def _pipeline_rules(plan: Plan) -> Iterator[str]:
    if plan.batch % plan.micro:
        yield tr("{batch} images cannot be split into {micro} equal micro-batches", batch=plan.batch, micro=plan.micro)
    if plan.gpus > (most := len(plan.layers.layers)):
        yield tr(
            "{gpus} GPUs are more than the {layers} layers of the {network}: each stage of a pipeline needs a layer",
            gpus=plan.gpus,
            layers=most,
            network=tr(plan.layers.title),
        )


def _attention_rules(plan: Plan) -> Iterator[str]:
    yield from attention_rules(plan.layers, plan.images, plan.gpus if plan.way == TENSOR else 1)


_RULES: Mapping[str, Callable[[Plan], Iterator[str]]] = {
    TENSOR: _tensor_rules,
    GPIPE: _pipeline_rules,
    ONE_F_ONE_B: _pipeline_rules,
}
