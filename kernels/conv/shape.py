"""The shape of a convolution, validated, with every derived extent.

Names of a convolution follow the cuDNN paper (arXiv 1410.0759): N images of C maps H x W, K filters
R x S, stride (u, v), padding (pad_h, pad_w), dilation; output P x Q. Those of a matrix product follow
BLAS: C = alpha * A x B + beta * C0, A [M, K], B [K, N], C and C0 [M, N].
"""

from __future__ import annotations

from dataclasses import dataclass

from kernels.i18n import tr
from kernels.model.shape import INT_MAX, Bound, Shape, ShapeError, flag, integer, one_of, pair, parse

MODES = ("cross-correlation", "convolution")
CONV_SINCE = {"groups": 1, "bias": 0, "relu": 0}  # fields added later, and their values in older rows


@dataclass(frozen=True, init=False)
class ConvShape(Shape):
    """A 2-D convolution in NCHW.

    Give `stride`, `pad`, `dilation` as one number or (vertical, horizontal), or name an axis:
    `u`, `v`, `pad_h`, `pad_w`, `dilation_h`, `dilation_w`. `mode` is "cross-correlation" (the
    default, as in every deep-learning framework) or "convolution" (filter flipped in both
    axes, as the cuDNN paper defines it). Each of the `groups` has C/groups maps and K/groups
    filters. Its filters use only its maps (depthwise: groups == C). `bias` (1 or 0): b[k] is
    added to map k. `relu`: negative values after that become 0.

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

    def __init__(
        self, N, C, H, W, K, R, S, *, stride=1, pad=0, dilation=1,
        u=None, v=None, pad_h=None, pad_w=None, dilation_h=None, dilation_w=None,
        mode="cross-correlation", groups=1, bias=0, relu=0,
    ):  # fmt: skip
        values = {
            ("u", "v"): (pair("stride", stride), (u, v), 1),
            ("pad_h", "pad_w"): (pair("pad", pad), (pad_h, pad_w), 0),
            ("dilation_h", "dilation_w"): (pair("dilation", dilation), (dilation_h, dilation_w), 1),
        }
        for name, value in zip("NCHWKRS", (N, C, H, W, K, R, S), strict=True):
            object.__setattr__(self, name, integer(name, value, 1))
        for names, (shared, single, min_value) in values.items():
            for name, default, axis_value in zip(names, shared, single, strict=True):
                object.__setattr__(
                    self, name, integer(name, default if axis_value is None else axis_value, min_value)
                )
        object.__setattr__(self, "mode", one_of("mode", mode, MODES))
        object.__setattr__(self, "groups", integer("groups", groups, 1))
        for name, value in (("bias", bias), ("relu", relu)):
            object.__setattr__(self, name, flag(name, value))
        for name, count in (("C", self.C), ("K", self.K)):
            if count % self.groups:
                raise ShapeError(
                    tr(
                        "{name} must be a multiple of groups, got {got}",
                        name=name,
                        got=f"{count} % {self.groups}",
                    )
                )
        self._check_fit("R", self.R, self.dilation_h, "H", self.H, self.pad_h, "pad_h")
        self._check_fit("S", self.S, self.dilation_w, "W", self.W, self.pad_w, "pad_w")

    @staticmethod
    def _check_fit(tap, taps, dilation, extent, size, pad, pad_name):
        span = dilation * (taps - 1) + 1
        if span > size + 2 * pad:
            raise ShapeError(
                tr(
                    "the filter must fit the padded input: {rule}, but {span} > {padded}",
                    rule=f"dilation*({tap}-1)+1 <= {extent}+2*{pad_name}",
                    span=span,
                    padded=size + 2 * pad,
                )
            )
        if size + 2 * pad > INT_MAX:
            raise ShapeError(
                tr(
                    "{formula} must stay below {limit}, got {count}",
                    formula=f"{extent}+2*{pad_name}",
                    limit="2^31",
                    count=size + 2 * pad,
                )
            )

    # -- derived extents ---------------------------------------------------------------------
    @property
    def stride(self) -> tuple[int, int]:
        return self.u, self.v

    @property
    def pad(self) -> tuple[int, int]:
        return self.pad_h, self.pad_w

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
        return (self.H + 2 * self.pad_h - self.span_h) // self.u + 1

    @property
    def Q(self) -> int:
        return (self.W + 2 * self.pad_w - self.span_w) // self.v + 1

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
    def params(self) -> dict[str, int | str]:
        """Returns the fields by name, as in a link, a recording row or JSON.

        Fields of CONV_SINCE are left out if they have the default value. So a shape has one name in old and new rows.
        """
        return {name: value for name, value in vars(self).items() if CONV_SINCE.get(name) != value}

    def __str__(self) -> str:
        text = f"N{self.N} C{self.C} {self.H}x{self.W} K{self.K} {self.R}x{self.S}"
        for name, values, default in (
            ("stride", self.stride, 1),
            ("pad", self.pad, 0),
            ("dilation", self.dilation, 1),
        ):
            if values != (default, default):
                text += f" {name} {values[0]}" + (f",{values[1]}" if values[0] != values[1] else "")
        text += f" groups {self.groups}" if self.groups > 1 else ""
        flags = {"bias": self.bias, "relu": self.relu, "flipped": self.flip}
        return text + "".join(f" {flag_name}" for flag_name, is_set in flags.items() if is_set)


FIELDS = (
    "N C H W K R S stride u v pad pad_h pad_w dilation dilation_h dilation_w mode groups bias relu".split()
)


def parse_conv(text: str) -> ConvShape:
    """Parse "N=1,C=3,H=8,W=8,K=4,R=3,S=3,pad=1" into a ConvShape. Raises ShapeError if the text is malformed."""
    return ConvShape(**parse(text, FIELDS, "NCHWKRS", text_fields=("mode",)))


def conv_bounds(shape: ConvShape, limits: dict[str, int]) -> dict[str, Bound]:
    """Returns for each field the values that keep `shape` valid while the other fields stay as they are.

    `limits` gives a page's maximum of a field. The default maximum is 2^31 - 1. Moving one control within its bound
    always gives a valid ConvShape.
    """
    s, limit = shape, lambda name: limits.get(name, INT_MAX)
    out = {name: Bound(1, limit(name)) for name in ("N", "C", "K", "u", "v")}
    if s.groups > 1:  # a range has no gaps: if only multiples are valid, the value is fixed
        rule = "C % groups == 0, K % groups == 0"
        out |= {"C": Bound(s.C, s.C, rule, rule), "K": Bound(s.K, s.K, rule, rule)}
    for size, extent, tap, taps, pad_name, pad, dil_name, dil in (
        ("H", s.H, "R", s.R, "pad_h", s.pad_h, "dilation_h", s.dilation_h),
        ("W", s.W, "S", s.S, "pad_w", s.pad_w, "dilation_w", s.dilation_w),
    ):
        rule = f"dilation*({tap}-1)+1 <= {size}+2*pad"
        padded, span = extent + 2 * pad, dil * (taps - 1) + 1
        out[size] = _low(max(1, span - 2 * pad), 1, limit(size), rule)
        out[tap] = _high(1, (padded - 1) // dil + 1, limit(tap), rule)
        out[pad_name] = _low(max(0, -(-(span - extent) // 2)), 0, limit(pad_name), rule)
        fits = (padded - 1) // (taps - 1) if taps > 1 else INT_MAX
        out[dil_name] = _high(1, fits, limit(dil_name), rule)
    return out


def _low(low: int, plain: int, high: int, rule: str) -> Bound:
    return Bound(low, max(high, low), rule if low > plain else "")


def _high(low: int, high: int, limit: int, rule: str) -> Bound:
    return Bound(low, min(high, limit), why_high=rule if high < limit else "")
