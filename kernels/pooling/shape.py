"""The shapes of pooling: a window that slides over each plane of x [N, C, H, W], and a whole plane at once.

Names follow the convolutions here: window R x S, stride (u, v), padding (pad_h, pad_w), dilation, output P x Q. The size
of the output is PyTorch's (torch.nn.MaxPool2d, torch.nn.AvgPool2d), also with ceil mode.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from kernels.i18n import tr
from kernels.model.shape import INT_MAX, Pair, Shape, ShapeError, flag, integer, pad_of, pair, parse

AXES = (("R", "u", "pad_h", "dilation_h", "H"), ("S", "v", "pad_w", "dilation_w", "W"))


def output_size(extent: int, window: int, stride: int, pad: int, dilation: int, ceil: int) -> int:
    """Returns the number of windows along an axis, 0 or less if none fits.

    With `ceil`, a last window may extend beyond the padding. It must start inside the input or the padding before it."""
    room = extent + 2 * pad - dilation * (window - 1) - 1 + (stride - 1 if ceil else 0)
    count = room // stride + 1
    return count - 1 if ceil and (count - 1) * stride >= extent + pad else count


@dataclass(frozen=True, init=False)
class PoolShape(Shape):
    """Pooling of x [N, C, H, W] to y [N, C, P, Q], NCHW, float32.

    Give `stride` and `pad` (or `padding`) as one number or (vertical, horizontal), or name an axis: `u`, `v`, `pad_h`, `pad_w`. The
    stride is by default the window, as in PyTorch. `ceil` (1 or 0): the size of the output is rounded up.

    Raises ShapeError, which names the broken rule.
    """

    N: int
    C: int
    H: int
    W: int
    R: int
    S: int
    u: int
    v: int
    pad_h: int
    pad_w: int
    ceil: int

    FLAGS: ClassVar[tuple[str, ...]] = ("ceil",)
    dilation_h = dilation_w = 1

    def _set(self, extents: tuple, stride, pad, singles: dict, flags: dict) -> None:
        """Set every field that pooling by windows has, and check it."""
        for name, value in zip("NCHWRS", extents, strict=True):
            object.__setattr__(self, name, integer(name, value, 1))
        stride = (self.R, self.S) if stride is None else pair("stride", stride)
        both = (("u", "v"), stride, 1), (("pad_h", "pad_w"), pair("pad", pad), 0)
        for names, shared, least in both:
            for name, common in zip(names, shared, strict=True):
                single = singles[name]
                object.__setattr__(self, name, integer(name, common if single is None else single, least))
        for name, value in flags.items():
            object.__setattr__(self, name, flag(name, value))

    def _check_windows(self) -> None:
        for axis in AXES:
            self._check_axis(*axis)

    def _check_axis(self, tap: str, step: str, pad_name: str, dil_name: str, size: str) -> None:
        window, stride, pad, dilation, extent = (getattr(self, name) for name in (tap, step, pad_name, dil_name, size))
        if pad > window // 2:
            raise ShapeError(tr("{rule}, got {got}", rule=f"{pad_name} <= {tap} // 2", got=f"{pad} > {window // 2}"))
        reach = extent + 2 * pad + dilation * (window - 1) + stride
        if reach > INT_MAX:
            raise ShapeError(
                tr(
                    "{formula} must stay below {limit}, got {count}",
                    formula=f"{size} + 2*{pad_name} + {dil_name}*({tap} - 1) + {step}",
                    limit="2^31",
                    count=reach,
                )
            )
        if output_size(extent, window, stride, pad, dilation, self.ceil) < 1:
            raise ShapeError(
                tr(
                    "the window must fit the padded input: {rule}, but {span} > {padded}",
                    rule=f"{dil_name}*({tap} - 1) + 1 <= {size} + 2*{pad_name}"
                    + (f" + {step} - 1" if self.ceil else ""),
                    span=dilation * (window - 1) + 1,
                    padded=extent + 2 * pad + (stride - 1 if self.ceil else 0),
                )
            )
        if pad and dilation > extent:
            raise ShapeError(
                tr(
                    "a window must hold a pixel: with padding, {rule}, got {got}",
                    rule=f"{dil_name} <= {size}",
                    got=f"{dilation} > {extent}",
                )
            )

    # -- derived extents -----------------------------------------------------------------------
    @property
    def P(self) -> int:
        return output_size(self.H, self.R, self.u, self.pad_h, self.dilation_h, self.ceil)

    @property
    def Q(self) -> int:
        return output_size(self.W, self.S, self.v, self.pad_w, self.dilation_w, self.ceil)

    @property
    def planes(self) -> int:
        return self.N * self.C

    @property
    def x_shape(self) -> tuple[int, int, int, int]:
        return self.N, self.C, self.H, self.W

    @property
    def y_shape(self) -> tuple[int, int, int, int]:
        return self.N, self.C, self.P, self.Q

    @property
    def pixels(self) -> int:
        """Elements of x."""
        return self.planes * self.H * self.W

    @property
    def outputs(self) -> int:
        """Elements of y."""
        return self.planes * self.P * self.Q

    @property
    def macs(self) -> int:
        """A measure of the work: one comparison or addition for each pixel of each window, padding included."""
        return self.outputs * self.R * self.S

    @property
    def flops(self) -> int:
        return self.macs

    def __str__(self) -> str:
        text = f"N{self.N} C{self.C} {self.H}x{self.W} window {self.R}x{self.S}"
        for name, values, default in self._settings():
            if values != default:
                text += f" {name} {values[0]}" + (f",{values[1]}" if values[0] != values[1] else "")
        return text + "".join(f" {name}" for name in self.FLAGS if getattr(self, name))

    def _settings(self) -> Iterator[tuple[str, tuple[int, int], tuple[int, int]]]:
        """Yields (name, its values along both axes, the default values)."""
        yield "stride", (self.u, self.v), (self.R, self.S)
        yield "pad", (self.pad_h, self.pad_w), (0, 0)
        yield "dilation", (self.dilation_h, self.dilation_w), (1, 1)


@dataclass(frozen=True, init=False)
class MaxPoolShape(PoolShape):
    """Max pooling: y is the largest value of each window, index its place h*W + w in the plane, int32.

    Of equal values the first in window order counts (row by row). A NaN counts as larger than every number, and of
    several the last counts, as in PyTorch. Padding is never the largest.
    """

    dilation_h: int
    dilation_w: int

    def __init__(
        self,
        N,
        C,
        H,
        W,
        R,
        S,
        *,
        stride: Pair | None = None,
        pad: Pair = 0,
        padding: Pair | None = None,
        dilation: Pair = 1,
        u=None,
        v=None,
        pad_h=None,
        pad_w=None,
        dilation_h=None,
        dilation_w=None,
        ceil=0,
    ):
        pad = pad_of(padding, pad, pad_h, pad_w)
        self._set((N, C, H, W, R, S), stride, pad, {"u": u, "v": v, "pad_h": pad_h, "pad_w": pad_w}, {"ceil": ceil})
        singles = (dilation_h, dilation_w)
        for name, common, single in zip(AXES_DILATION, pair("dilation", dilation), singles, strict=True):
            object.__setattr__(self, name, integer(name, common if single is None else single, 1))
        self._check_windows()

    @property
    def bytes(self) -> int:
        """Minimum traffic in bytes: x once, y and the indices once. Backward moves as many."""
        return 4 * (self.pixels + 2 * self.outputs)


AXES_DILATION = ("dilation_h", "dilation_w")


@dataclass(frozen=True, init=False)
class AvgPoolShape(PoolShape):
    """Average pooling: y is the mean of each window.

    `include_pad` (1 or 0): pixels of the padding count as zeros in the divisor, as PyTorch's count_include_pad. What
    ceil mode adds beyond the padding never counts.
    """

    include_pad: int

    FLAGS: ClassVar[tuple[str, ...]] = ("ceil", "include_pad")

    def __init__(
        self,
        N,
        C,
        H,
        W,
        R,
        S,
        *,
        stride: Pair | None = None,
        pad: Pair = 0,
        padding: Pair | None = None,
        u=None,
        v=None,
        pad_h=None,
        pad_w=None,
        ceil=0,
        include_pad=1,
    ):
        singles = {"u": u, "v": v, "pad_h": pad_h, "pad_w": pad_w}
        pad = pad_of(padding, pad, pad_h, pad_w)
        self._set((N, C, H, W, R, S), stride, pad, singles, {"ceil": ceil, "include_pad": include_pad})
        self._check_windows()

    @property
    def bytes(self) -> int:
        """Minimum traffic in bytes: x once, y once. Backward moves as many."""
        return 4 * (self.pixels + self.outputs)


@dataclass(frozen=True)
class GlobalShape(Shape):
    """Global average pooling: y [N, C] is the mean of each plane of x [N, C, H, W], float32.

    Raises ShapeError, which names the broken rule.
    """

    N: int
    C: int
    H: int
    W: int

    def __post_init__(self):
        self._check("NCHW", integer, 1)

    @property
    def planes(self) -> int:
        return self.N * self.C

    @property
    def area(self) -> int:
        """Pixels of a plane."""
        return self.H * self.W

    @property
    def pixels(self) -> int:
        return self.planes * self.area

    @property
    def macs(self) -> int:
        """Measure of the work."""
        return self.pixels

    @property
    def flops(self) -> int:
        return self.pixels

    @property
    def bytes(self) -> int:
        """Minimum traffic in bytes: x once, y once. Backward moves as many."""
        return 4 * (self.pixels + self.planes)

    def __str__(self) -> str:
        return f"N{self.N} C{self.C} {self.H}x{self.W}"


WINDOW_FIELDS = ("N", "C", "H", "W", "R", "S", "stride", "u", "v", "pad", "padding", "pad_h", "pad_w")
MAX_FIELDS = (*WINDOW_FIELDS, "dilation", *AXES_DILATION, "ceil")
AVG_FIELDS = (*WINDOW_FIELDS, "ceil", "include_pad")


def parse_max(text: str) -> MaxPoolShape:
    """Parse "N=1,C=3,H=8,W=8,R=3,S=3,stride=2,pad=1" into a MaxPoolShape. Raises ShapeError if the text is malformed."""
    return MaxPoolShape(**parse(text, MAX_FIELDS, "NCHWRS"))


def parse_avg(text: str) -> AvgPoolShape:
    """Parse "N=1,C=3,H=8,W=8,R=2,S=2,include_pad=0" into an AvgPoolShape. Raises ShapeError if the text is malformed."""
    return AvgPoolShape(**parse(text, AVG_FIELDS, "NCHWRS"))


def parse_global(text: str) -> GlobalShape:
    """Parse "N=1,C=3,H=8,W=8" into a GlobalShape. Raises ShapeError if the text is malformed."""
    return GlobalShape(**parse(text, "NCHW", "NCHW"))
