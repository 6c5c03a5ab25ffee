"""The shape of a convolution, validated, with every derived extent.

Names of a convolution follow the cuDNN paper (arXiv 1410.0759): N images of C maps H x W, K filters
R x S, stride (u, v), padding (pad_h, pad_w), dilation; output P x Q. Those of a matrix product follow
BLAS: C = alpha * A x B + beta * C0, A [M, K], B [K, N], C and C0 [M, N].
"""

from __future__ import annotations

from dataclasses import dataclass

from kernels.i18n import tr
from kernels.model.row import Json
from kernels.model.shape import INT_MAX, Pair, Shape, ShapeError, flag, integer, one_of, pad_of, pair, parse

MODES = ("cross-correlation", "convolution")
# Fields added later, and their values in older rows.
EXTRA_SINCE = {"extra_h": 0, "extra_w": 0}
CONV_SINCE = {"groups": 1, "bias": 0, "relu": 0, **EXTRA_SINCE}


@dataclass(frozen=True, init=False)
class ConvShape(Shape):
    """A 2-D convolution in NCHW.

    Give `stride`, `pad`, `dilation` as one number or (vertical, horizontal), or name an axis:
    `u`, `v`, `pad_h`, `pad_w`, `dilation_h`, `dilation_w`. `mode` is "cross-correlation" (the
    default, as in every deep-learning framework) or "convolution" (filter flipped in both
    axes, as the cuDNN paper defines it). Each of the `groups` has C/groups maps and K/groups
    filters. Its filters use only its maps (depthwise: groups == C). `bias` (1 or 0): b[k] is
    added to map k. `relu`: negative values after that become 0. `pad` rows and columns of zeros
    are before the input, `pad + extra` after it. So `extra` (`extra_h`, `extra_w`) is at least
    -pad. `padding` is PyTorch's: numbers as `pad`, "valid" (0), or "same", which sets `pad` and `extra` so that
    P = H and Q = W. A 1-D convolution has H = R = 1. It is causal if pad_w = dilation_w*(S-1) and extra_w = -pad_w.

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
    dilation_h: int
    dilation_w: int
    mode: str
    groups: int
    bias: int
    relu: int
    extra_h: int
    extra_w: int

    def __init__(
        self, N, C, H, W, K, R, S, *, stride: Pair = 1, pad: Pair | str = 0, dilation: Pair = 1,
        u=None, v=None, pad_h=None, pad_w=None, dilation_h=None, dilation_w=None, mode="cross-correlation",
        groups=1, bias=0, relu=0, extra: Pair = 0, extra_h=None, extra_w=None, padding: Pair | str | None = None,
    ):  # fmt: skip
        for name, value in zip("NCHWKRS", (N, C, H, W, K, R, S), strict=True):
            object.__setattr__(self, name, integer(name, value, 1))
        strides = self._axes(("u", "v"), pair("stride", stride), (u, v), 1)
        dilations = self._axes(("dilation_h", "dilation_w"), pair("dilation", dilation), (dilation_h, dilation_w), 1)
        if padding is not None or isinstance(pad, str):
            padding, pad = (pad, 0) if padding is None else (padding, pad)
            pad = pad_of(padding, pad, pad_h, pad_w, *pair("extra", extra), extra_h, extra_w)
            pad, extra = self._padding(pad, strides, dilations)
            pad_h = pad_w = extra_h = extra_w = None
        pads = self._axes(("pad_h", "pad_w"), pair("pad", pad), (pad_h, pad_w), 0)
        names = ("u", "v", "pad_h", "pad_w", "dilation_h", "dilation_w")
        for name, value in zip(names, (*strides, *pads, *dilations), strict=True):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "mode", one_of("mode", mode, MODES))
        object.__setattr__(self, "groups", integer("groups", groups, 1))
        for name, value in (("bias", bias), ("relu", relu)):
            object.__setattr__(self, name, flag(name, value))
        for name, count in (("C", self.C), ("K", self.K)):
            if count % self.groups:
                raise ShapeError(
                    tr("{name} must be a multiple of groups, got {got}", name=name, got=f"{count} % {self.groups}")
                )
        set_extra(self, pair("extra", extra), (extra_h, extra_w))
        self._check_fit("R", self.span_h, padded_text("H", "h", self.extra_h), self.padded_h)
        self._check_fit("S", self.span_w, padded_text("W", "w", self.extra_w), self.padded_w)

    @staticmethod
    def _axes(names: tuple[str, str], shared: tuple, single: tuple, minimum: int) -> tuple[int, int]:
        (down, across), (own_down, own_across) = shared, single
        return (
            integer(names[0], down if own_down is None else own_down, minimum),
            integer(names[1], across if own_across is None else own_across, minimum),
        )

    def _padding(self, padding: Pair | str, strides: Pair, dilations: tuple[int, int]) -> tuple[Pair, Pair]:
        """Returns (pad, extra) of a padding, also of PyTorch's "same" and "valid"."""
        if not isinstance(padding, str):
            return padding, 0
        one_of("padding", padding, ("same", "valid"))
        if padding == "valid":
            return 0, 0
        if strides != (1, 1):
            raise ShapeError(
                tr(
                    'padding "same" needs stride 1, as in PyTorch, got stride {got}: give pad and extra as numbers',
                    got=strides,
                )
            )
        down, across = dilations[0] * (self.R - 1), dilations[1] * (self.S - 1)
        return (down // 2, across // 2), (down % 2, across % 2)

    @staticmethod
    def _check_fit(tap: str, span: int, formula: str, padded: int) -> None:
        """Check one axis: the filter fits the padded input, whose size has this formula."""
        if span > padded:
            raise ShapeError(
                tr(
                    "the filter must fit the padded input: {rule}, but {span} > {padded}",
                    rule=f"dilation*({tap}-1)+1 <= {formula}",
                    span=span,
                    padded=padded,
                )
            )
        if padded > INT_MAX:
            raise ShapeError(
                tr("{formula} must stay below {limit}, got {count}", formula=formula, limit="2^31", count=padded)
            )

    # -- derived extents ---------------------------------------------------------------------
    @property
    def stride(self) -> tuple[int, int]:
        return self.u, self.v

    @property
    def pad(self) -> tuple[int, int]:
        return self.pad_h, self.pad_w

    @property
    def after(self) -> tuple[int, int]:
        """Rows of zeros below the input, columns of zeros at its right: pad + extra."""
        return self.pad_h + self.extra_h, self.pad_w + self.extra_w

    @property
    def pad_widths(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """((above, below), (left, right)): the padding of the last two axes, as np.pad takes it."""
        return (self.pad_h, self.pad_h + self.extra_h), (self.pad_w, self.pad_w + self.extra_w)

    @property
    def padded_h(self) -> int:
        return self.H + 2 * self.pad_h + self.extra_h

    @property
    def padded_w(self) -> int:
        return self.W + 2 * self.pad_w + self.extra_w

    @property
    def dilation(self) -> tuple[int, int]:
        return self.dilation_h, self.dilation_w

    @property
    def flip(self) -> bool:
        """True if the filter is flipped in both axes (mode "convolution")."""
        return self.mode == "convolution"

    @property
    def span_h(self) -> int:
        """Input rows between the first and last tap, inclusive."""
        return self.dilation_h * (self.R - 1) + 1

    @property
    def span_w(self) -> int:
        return self.dilation_w * (self.S - 1) + 1

    @property
    def P(self) -> int:
        return (self.padded_h - self.span_h) // self.u + 1

    @property
    def Q(self) -> int:
        return (self.padded_w - self.span_w) // self.v + 1

    @property
    def maps(self) -> int:
        """Input maps that a filter uses: those of its group."""
        return self.C // self.groups

    @property
    def filters(self) -> int:
        """Filters in each group."""
        return self.K // self.groups

    @property
    def CRS(self) -> int:
        return self.maps * self.R * self.S

    @property
    def PQ(self) -> int:
        return self.P * self.Q

    @property
    def x_shape(self) -> tuple[int, int, int, int]:
        return self.N, self.C, self.H, self.W

    @property
    def w_shape(self) -> tuple[int, int, int, int]:
        return self.K, self.maps, self.R, self.S

    @property
    def y_shape(self) -> tuple[int, int, int, int]:
        return self.N, self.K, self.P, self.Q

    # -- cost ----------------------------------------------------------------------------------
    @property
    def macs(self) -> int:
        """Multiply-adds of direct convolution, padding taps included (as cuDNN counts)."""
        return self.N * self.K * self.PQ * self.CRS

    @property
    def flops(self) -> int:
        """Direct-convolution FLOPs, two per multiply-add, without bias and ReLU: the base of "effective" FLOP/s."""
        return 2 * self.macs

    @property
    def elements(self) -> dict[str, int]:
        return {
            "x": self.N * self.C * self.H * self.W,
            "w": self.K * self.CRS,
            "y": self.N * self.K * self.PQ,
            **({"b": self.K} if self.bias else {}),
        }

    @property
    def bytes(self) -> int:
        """Minimum traffic in bytes at FP32: each input read once, each output written once."""
        return 4 * sum(self.elements.values())

    # -- as data -------------------------------------------------------------------------------
    def params(self) -> Json:
        """Returns the fields by name, as in a link, a recording row or JSON.

        Fields of CONV_SINCE are left out if they have the default value. So a shape has one name in old and new rows.
        """
        return {name: value for name, value in vars(self).items() if CONV_SINCE.get(name) != value}

    def __str__(self) -> str:
        text = f"N{self.N} C{self.C} {self.H}x{self.W} K{self.K} {self.R}x{self.S}"
        for name, values, default in (
            ("stride", self.stride, 1),
            ("pad", self.pad, 0),
            ("extra", (self.extra_h, self.extra_w), 0),
            ("dilation", self.dilation, 1),
        ):
            if values != (default, default):
                text += f" {name} {values[0]}" + (f",{values[1]}" if values[0] != values[1] else "")
        text += f" groups {self.groups}" if self.groups > 1 else ""
        flags = {"bias": self.bias, "relu": self.relu, "flipped": self.flip}
        return text + "".join(f" {flag_name}" for flag_name, is_set in flags.items() if is_set)


FIELDS = (
    "N C H W K R S stride u v pad padding pad_h pad_w extra extra_h extra_w dilation dilation_h dilation_w mode groups bias relu"
).split()


def set_extra(shape: Shape, shared: tuple[object, object], single: tuple[object, object]) -> None:
    """Set extra_h and extra_w of a shape that has its padding. ShapeError if there is less than none after the input."""
    for axis, default, value in zip("hw", shared, single, strict=True):
        name, pad = f"extra_{axis}", getattr(shape, f"pad_{axis}")
        number = integer(name, default if value is None else value, -INT_MAX)
        if number < -pad:
            raise ShapeError(extra_rule(axis, number, pad))
        object.__setattr__(shape, name, number)


def extra_rule(axis: str, extra: int, pad: int) -> str:
    """Returns the rule on the padding after the input, with the numbers that break it. `axis` is h or w."""
    return tr(
        "the padding after the input must not be negative: {rule}, but {extra} < {pad}",
        rule=f"extra_{axis} >= -pad_{axis}",
        extra=extra,
        pad=-pad,
    )


def padded_text(size: str, axis: str, extra: int) -> str:
    """Returns the formula of the padded input's size along an axis: "H+2*pad_h", with extra_h if there is any."""
    return f"{size}+2*pad_{axis}" + (f"+extra_{axis}" if extra else "")


def parse_conv(text: str) -> ConvShape:
    """Parse "N=1,C=3,H=8,W=8,K=4,R=3,S=3,pad=1" into a ConvShape. Raises ShapeError if the text is malformed."""
    return ConvShape(**parse(text, FIELDS, "NCHWKRS", text_fields=("mode",)))
