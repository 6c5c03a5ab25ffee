"""The shape of a transposed convolution, validated, and the convolution whose input gradient it is."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.conv.shape import EXTRA_SINCE, ConvShape, set_extra
from kernels.i18n import tr
from kernels.model.shape import Pair, Shape, ShapeError, integer, pad_of, pair, parse


@dataclass(frozen=True, init=False)
class TransposeShape(Shape):
    """A 2-D transposed convolution in NCHW: x [N,C,H,W] and w [C,K/groups,R,S] give y [N,K,P,Q].

    P = (H-1)*u - 2*pad_h - extra_h + dilation_h*(R-1) + output_pad_h + 1, and Q likewise. pad_h rows are cut off above,
    pad_h + extra_h below. Several sizes P are the input of a
    convolution with output H: output_pad chooses one of them, so it must be below the stride. `stride`, `pad` (or `padding`),
    `output_pad` and `dilation` are one number or (vertical, horizontal); an axis has a name of its own, as in ConvShape.

    Raises ShapeError, which names the broken rule.
    """

    N: int
    C: int
    H: int
    W: int
    K: int
    R: int
    S: int
    u: int
    v: int
    pad_h: int
    pad_w: int
    output_pad_h: int
    output_pad_w: int
    dilation_h: int
    dilation_w: int
    groups: int
    extra_h: int
    extra_w: int

    def __init__(
        self, N, C, H, W, K, R, S, *, stride: Pair = 1, pad: Pair = 0, output_pad: Pair = 0, dilation: Pair = 1,
        u=None, v=None, pad_h=None, pad_w=None,
        output_pad_h=None, output_pad_w=None, dilation_h=None, dilation_w=None, groups=1, extra: Pair = 0, extra_h=None,
        extra_w=None, padding: Pair | None = None,
    ):  # fmt: skip
        pad_pair = pair("pad", pad_of(padding, pad, pad_h, pad_w))
        axes = {
            ("u", "v"): (pair("stride", stride), (u, v), 1),
            ("pad_h", "pad_w"): (pad_pair, (pad_h, pad_w), 0),
            ("output_pad_h", "output_pad_w"): (pair("output_pad", output_pad), (output_pad_h, output_pad_w), 0),
            ("dilation_h", "dilation_w"): (pair("dilation", dilation), (dilation_h, dilation_w), 1),
        }
        for name, value in zip("NCHWKRS", (N, C, H, W, K, R, S), strict=True):
            object.__setattr__(self, name, integer(name, value, 1))
        for names, (shared, single, minimum) in axes.items():
            for name, default, value in zip(names, shared, single, strict=True):
                object.__setattr__(self, name, integer(name, default if value is None else value, minimum))
        object.__setattr__(self, "groups", integer("groups", groups, 1))
        set_extra(self, pair("extra", extra), (extra_h, extra_w))
        self._check_output()

    def _check_output(self) -> None:
        """Check the output's size, and the rules of the convolution that goes the other way. ShapeError names the rule."""
        for name, output_pad, stride_name, stride in (
            ("output_pad_h", self.output_pad_h, "u", self.u),
            ("output_pad_w", self.output_pad_w, "v", self.v),
        ):
            if output_pad >= stride:
                got = f"{output_pad} >= {stride}"
                raise ShapeError(
                    tr("{name} must be below the stride {stride}, got {got}", name=name, stride=stride_name, got=got)
                )
        for name, size in (("P", self.P), ("Q", self.Q)):
            if size < 1:
                raise ShapeError(
                    tr("the padding must leave an output: {name} must be at least 1, got {got}", name=name, got=size)
                )
        assert (self.conv.P, self.conv.Q) == (self.H, self.W)

    @property
    def P(self) -> int:
        span = self.dilation_h * (self.R - 1) + 1
        return (self.H - 1) * self.u - 2 * self.pad_h - self.extra_h + span + self.output_pad_h

    @property
    def Q(self) -> int:
        span = self.dilation_w * (self.S - 1) + 1
        return (self.W - 1) * self.v - 2 * self.pad_w - self.extra_w + span + self.output_pad_w

    @property
    def conv(self) -> ConvShape:
        """Returns the convolution from y to x: the transposed convolution is the gradient of its input."""
        return ConvShape(
            self.N,
            self.K,
            self.P,
            self.Q,
            self.C,
            self.R,
            self.S,
            stride=(self.u, self.v),
            pad=(self.pad_h, self.pad_w),
            dilation=(self.dilation_h, self.dilation_w),
            groups=self.groups,
            extra=(self.extra_h, self.extra_w),
        )

    @classmethod
    def of(cls, conv: ConvShape) -> TransposeShape:
        """Returns the transposed convolution that computes the gradient of this convolution's input. Its filter must
        not be flipped; bias and ReLU are left out."""
        rest_h, rest_w = conv.padded_h - conv.span_h, conv.padded_w - conv.span_w
        return cls(
            conv.N,
            conv.K,
            conv.P,
            conv.Q,
            conv.C,
            conv.R,
            conv.S,
            stride=conv.stride,
            pad=conv.pad,
            output_pad=(rest_h % conv.u, rest_w % conv.v),
            dilation=conv.dilation,
            groups=conv.groups,
            extra=(conv.extra_h, conv.extra_w),
        )

    @property
    def x_shape(self) -> tuple[int, int, int, int]:
        return self.N, self.C, self.H, self.W

    @property
    def w_shape(self) -> tuple[int, int, int, int]:
        return self.C, self.K // self.groups, self.R, self.S

    @property
    def y_shape(self) -> tuple[int, int, int, int]:
        return self.N, self.K, self.P, self.Q

    @property
    def macs(self) -> int:
        """Multiply-adds of the definition, those whose output the padding cuts off included."""
        return self.conv.macs

    @property
    def flops(self) -> int:
        """FLOPs of the definition: two per tap of each input pixel, also where the padding cuts its output off."""
        return self.conv.flops

    @property
    def bytes(self) -> int:
        """Minimum traffic in bytes at FP32: each input read once, the output written once."""
        return self.conv.bytes

    def params(self) -> dict[str, int]:
        """Returns the fields by name, as in a link, a recording row or JSON; those added later only if they are set."""
        return {name: value for name, value in vars(self).items() if EXTRA_SINCE.get(name) != value}

    def __str__(self) -> str:
        text = f"N{self.N} C{self.C} {self.H}x{self.W} K{self.K} {self.R}x{self.S}"
        for name, values, default in (
            ("stride", (self.u, self.v), 1),
            ("pad", (self.pad_h, self.pad_w), 0),
            ("extra", (self.extra_h, self.extra_w), 0),
            ("output_pad", (self.output_pad_h, self.output_pad_w), 0),
            ("dilation", (self.dilation_h, self.dilation_w), 1),
        ):
            if values != (default, default):
                text += f" {name} {values[0]}" + (f",{values[1]}" if values[0] != values[1] else "")
        return text + (f" groups {self.groups}" if self.groups > 1 else "")


FIELDS = (
    "N C H W K R S stride u v pad padding pad_h pad_w extra extra_h extra_w output_pad output_pad_h output_pad_w dilation dilation_h "
    "dilation_w groups"
).split()


def parse_transpose(text: str) -> TransposeShape:
    """Parse "N=1,C=2,H=3,W=3,K=1,R=3,S=3,stride=2" into a TransposeShape. Raises ShapeError if the text is malformed."""
    return TransposeShape(**parse(text, FIELDS, "NCHWKRS"))
