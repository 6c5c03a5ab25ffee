"""The controls of the attention lesson: presets, extents, numbers on the stage, rung on the stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import streamlit as st

from kernels import records
from kernels.attention.presets import ATTENTION_PRESETS
from kernels.attention.shape import AttentionShape, SelfAttentionShape
from kernels.i18n import decimal, mark, tr, trn
from pages.attention import address
from pages.attention.address import ADDRESS
from pages.parts.address import Fields
from pages.parts.controls import Link, choose, chooser, derived, labels, limits, more, numbers, presets, select
from pages.parts.rung_address import Selection
from pages.parts.sizes import Sizes
from visuals import units
from visuals.attention.inputs import KINDS

CHIPS = labels(
    ATTENTION_PRESETS,
    "attention-toy attention-16 attention-toy-causal paper-cpu gpt2 bert attention-2048 attention-2048-causal "
    "attention-2048-fp16 attention-8192 attention-d128 attention-ragged decode-toy window-toy llama-decode llama-decode-16 "
    "llama-2048 mistral-8192 gemma2-2048 diffusion-cross t5-bias",
    {
        "attention-toy-causal": mark("N=16, causal"),
        "paper-cpu": "N=1024",
        "attention-d128": "d=128",
        "attention-ragged": mark("ragged"),
        "decode-toy": mark("Toy decoding"),
        "window-toy": mark("Toy window"),
        "mistral-8192": mark("Mistral, window"),
        "gemma2-2048": mark("Gemma 2, softcap"),
        "diffusion-cross": mark("cross-attention"),
    },
)
LINE = ((("B", "B", 64),), (("H", "H", 70),), (("N", "N", 92),), (("d", "d", 70),))
RARE = ((("scale", "scale", 110),),)
VARIANTS = ((("M", "M", 110),), (("window", "window", 110),), (("softcap", "softcap", 110),))
CAUSAL_PX = 98
CAPTIONS = {name: caption for name, (caption, _) in KINDS.items()}


REAL = ATTENTION_PRESETS["attention-2048"].shape
# Of the rungs that run variants only.
REAL_VARIANTS = {
    "attention/flash-variants": ATTENTION_PRESETS["t5-bias"].shape,
    "attention/flash-mma-variants": ATTENTION_PRESETS["llama-2048"].shape,
    "attention/flash-decode": ATTENTION_PRESETS["llama-decode"].shape,
}


def sizes(query: Selection) -> Sizes:
    """Returns how the strip names a shape, and a real one: of 2,048 tokens, causal and of the same type if the stage's is.

    A rung that runs variants only has a preset with a variant, if that is recorded."""

    def real(s: AttentionShape) -> AttentionShape | None:
        if not (variant := REAL_VARIANTS.get(query.rung.name)):
            return replace(REAL, causal=s.causal, dtype=s.dtype)
        recorded = records.recorded(query.rung.name, variant, query.rung.default_tiles)
        return variant if recorded and _hides_alike(variant, s) else None

    return Sizes(name, real, ADDRESS.chosen_tiles(query))


def _hides_alike(a: AttentionShape, b: AttentionShape) -> bool:
    """Returns whether both have the same kind of mask, and both or neither a window and a cap."""
    return a.mask == b.mask and bool(a.window) == bool(b.window) and bool(a.softcap) == bool(b.softcap)


def name(s: SelfAttentionShape) -> str:
    """Returns a shape in a few words: "N = 2,048, 16 heads of 64, batch 4"."""
    heads = trn("{n} head of {d}", "{n} heads of {d}", s.H, d=s.d)
    words = [f"N = {decimal(f'{s.N:,}')}", heads]
    words += [tr("batch {n}", n=s.B)] * (s.B > 1) + [tr("causal")] * bool(s.causal)
    words += _variant_words(s)
    return ", ".join(words + [s.dtype.upper()] * (s.dtype != "fp32"))


def _variant_words(s: SelfAttentionShape) -> list[str]:
    words = {
        "M": lambda n: trn("{n} key", "{n} keys", n),
        "kv_heads": lambda n: trn("{n} head of keys", "{n} heads of keys", n),
        "window": lambda n: tr("window {n}", n=decimal(f"{n:,}")),
        "softcap": lambda n: tr("softcap {n}", n=decimal(f"{n:g}")),
        "mask": lambda kind: tr("{kind} mask", kind=kind),
    }
    return [words[name](value) for name, value in s.variants.items()]


def draw(fields: Fields, query: Selection, link: Link) -> None:
    """Draws presets, numbers on the stage, extents, type and variants."""
    with st.container(key="chips", horizontal=True):
        presets(link, CHIPS, ATTENTION_PRESETS, ADDRESS.lit_shape(query))
        chooser(address.VALUES, CAPTIONS)
    types, s = tr("The type is that of Q, K, V and O."), query.shape
    draw_fields(fields, s, types, _work(s), lambda: _variants(fields, s))


def _variants(fields: Fields, s: AttentionShape) -> None:
    """Draws the fields of attention's variants."""
    bounds = address.variant_bounds(s)
    with st.container(key="params_variants", horizontal=True):
        numbers(fields, VARIANTS, bounds)
    if s.H > 1:
        shares = [0, *(n for n in range(1, s.H) if s.H % n == 0)]
        choose(fields, "kv_heads", tr("kv_heads, for H heads of queries"), shares)
    choose(fields, "mask", tr("mask"))
    st.caption(
        tr(
            "0 is off. M: the number of keys, if it is not N. The last query is at the last key. window: a query sees that many keys "
            "up to its own position. softcap c: a score becomes c · tanh(score / c). kv_heads: heads with keys. Several heads of "
            "queries share each of them. mask [N, M]: it hides pairs (bool) or is added to the scores (bias)."
        )
    )
    limits(vars(s), bounds)


def draw_fields(
    fields: Fields, s: SelfAttentionShape, types: str, work: str, variants: Callable[[], None] = lambda: None
) -> None:
    """Draws the fields of a shape. `types` says which tensors have its type; `work` is HTML that follows from it. `variants`
    draws other rare fields."""
    bounds = address.bounds(s)
    with st.container(key="params", horizontal=True):
        numbers(fields, LINE, bounds)
        select(fields, "causal", CAUSAL_PX)
        with more(_more_label(s), fields, RARE, bounds):
            choose(fields, "dtype")
            st.caption(
                tr(
                    "B sequences have H heads each. A head has N queries and N keys of size d. The scores are multiplied by scale; 0 means 1/√d, here "
                    "{factor}. {types} Sums are FP32. Each kernel runs only the types it was written for.",
                    factor=f"{1 / s.d**0.5:.3g}",
                    types=types,
                )
            )
            variants()
        derived(work)
    limits(s.params(), bounds)


def _work(s: AttentionShape) -> str:
    """Returns HTML: the size of S, the FLOPs, and the least bytes that attention of this shape moves."""
    fields = {
        "N": decimal(f"{s.N:,}"),
        "M": decimal(f"{s.keys:,}"),
        "heads": decimal(f"{s.heads:,}"),
        "flops": units.count(s.flops),
        "bytes": units.bytes_(s.bytes),
    }
    if s.heads > 1:
        return tr(
            "S <b>{N}×{M}</b> for each of <b>{heads}</b> heads · <b>{flops}</b> FLOP · at least <b>{bytes}</b> moved",
            **fields,
        )
    return tr("S <b>{N}×{M}</b> · <b>{flops}</b> FLOP · at least <b>{bytes}</b> moved", **fields)


def _more_label(s: SelfAttentionShape) -> str:
    """Returns the settings in the popover that differ from their defaults."""
    parts = [f"scale {s.scale:g}"] * bool(s.scale) + [s.dtype] * (s.dtype != address.DEFAULT.dtype)
    names = {
        "M": "M {}",
        "kv_heads": tr("KV heads {}"),
        "window": tr("window {}"),
        "softcap": "softcap {:g}",
        "mask": tr("{} mask"),
    }
    parts += [names[name].format(value) for name, value in s.variants.items()]
    return ", ".join(parts)
